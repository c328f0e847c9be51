"""What can be declared: the only place that names an option, its default and its meaning."""
