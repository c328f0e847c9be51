"""How fast a running release is: measured with streamed completions, judged against floors and baselines."""
