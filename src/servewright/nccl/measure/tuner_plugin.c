/* NCCL tuner plugin: picks algorithm, protocol and channels per message size from a CSV file.
 *
 * NCCL has no setting for a choice by size; a tuner plugin is the only way. NVIDIA publishes an example of one as
 * source. This one reads the same file format but differs where the example is unfit for a server: a message that no
 * row covers is left to NCCL (the example gives it one channel), channels -1 leaves the channels to NCCL (likewise),
 * an unknown word is an error with file and line rather than a silent default, and one library serves every NCCL from
 * 2.23 on. It needs no header of NCCL: the interface below is fixed by NCCL's plugin versions 3, 4 and 5
 * (src/include/plugin/tuner/ in NCCL's source).
 *
 *     cc -O2 -shared -fPIC -o libservewright-tuner.so tuner_plugin.c
 *     NCCL_TUNER_PLUGIN=/path/libservewright-tuner.so NCCL_TUNER_CONFIG_FILE=/path/table.csv
 *
 * A row: collective,min bytes,max bytes,algorithm,protocol,channels,nodes,ranks[,pipe ops,registered buffers]
 * with -1 for any. The first row that fits wins. A table that cannot be used is reported by a warning in NCCL's log
 * and leaves every choice to NCCL, because a service that starts slowly tuned beats one that does not start.
 *
 * With SERVEWRIGHT_TUNER_RELOAD set the table is read again for every message that is enqueued or captured. That is for
 * measuring: many tables on one communicator, so that they differ in nothing else.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, SYSTEM_ERROR = 2 };
enum { LOG_WARN = 2, LOG_INFO = 3 };
enum { SUBSYSTEM_INIT = 0x1, SUBSYSTEM_TUNING = 0x40 };
enum { MAX_LINE = 512, MAX_FIELDS = 10, REQUIRED_FIELDS = 8 };

typedef void (*logger)(int level, unsigned long subsystems, const char *file, int line, const char *format, ...);

/* In the order of NCCL's own numbers. */
static const char *const COLLECTIVES[] = {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"};
static const char *const ALGORITHMS[] = {"tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
static const char *const PROTOCOLS[] = {"ll", "ll128", "simple"};
#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

typedef struct {
    uint64_t min_bytes, max_bytes;
    int collective, algorithm, protocol, channels, nodes, ranks, pipe_ops, registered;
} row;

typedef struct {
    row *rows;
    size_t count;
    int nodes, ranks, reload;
    logger log;
} table;

#define SAY_IN(log, level, subsystems, ...) \
    do { \
        if (log) (log)(level, subsystems, "tuner_plugin.c", __LINE__, __VA_ARGS__); \
    } while (0)
#define SAY(log, level, ...) SAY_IN(log, level, SUBSYSTEM_INIT | SUBSYSTEM_TUNING, __VA_ARGS__)
/* One line per enqueued message, so only for those who ask NCCL for its choices. */
#define TELL(log, ...) SAY_IN(log, LOG_INFO, SUBSYSTEM_TUNING, __VA_ARGS__)

static char *trim(char *text) {
    text += strspn(text, " \t\r\n");
    size_t length = strlen(text);
    while (length && strchr(" \t\r\n", text[length - 1])) text[--length] = '\0';
    return text;
}

static int word(const char *text, const char *const *list, int count, int *out) {
    for (int i = 0; i < count; i++)
        if (strcmp(text, list[i]) == 0) {
            *out = i;
            return 1;
        }
    return 0;
}

static int size(const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno;
}

/* -1 for any, else lowest or more. */
static int number(const char *text, long lowest, int *out) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    *out = (int)value;
    return *text && !*end && !errno && value <= INT32_MAX && (value == -1 || value >= lowest);
}

/* Returns what is wrong with the line, NULL when nothing is. */
static const char *parse(char *line, row *out) {
    char *fields[MAX_FIELDS], *rest = line, *field;
    int count = 0;
    while ((field = strsep(&rest, ",")) != NULL) {
        if (count == MAX_FIELDS) return "more than 10 fields";
        fields[count++] = trim(field);
    }
    if (count < REQUIRED_FIELDS) return "fewer than 8 fields";
    if (!word(fields[0], COLLECTIVES, COUNT(COLLECTIVES), &out->collective)) return "unknown collective";
    if (!size(fields[1], &out->min_bytes) || !size(fields[2], &out->max_bytes)) return "a size is not a number of bytes";
    if (out->min_bytes > out->max_bytes) return "the smallest size is above the largest";
    if (!word(fields[3], ALGORITHMS, COUNT(ALGORITHMS), &out->algorithm)) return "unknown algorithm";
    if (!word(fields[4], PROTOCOLS, COUNT(PROTOCOLS), &out->protocol)) return "unknown protocol";
    if (!number(fields[5], 1, &out->channels)) return "channels is neither -1 nor a count";
    if (!number(fields[6], 1, &out->nodes)) return "nodes is neither -1 nor a count";
    if (!number(fields[7], 1, &out->ranks)) return "ranks is neither -1 nor a count";
    out->pipe_ops = out->registered = -1;
    if (count > 8 && !number(fields[8], 0, &out->pipe_ops)) return "pipe ops is neither -1 nor a count";
    if (count > 9 && !number(fields[9], 0, &out->registered)) return "registered buffers is not -1, 0 or 1";
    return NULL;
}

static int load(table *t, const char *path) {
    FILE *file = fopen(path, "re");
    if (!file) {
        SAY(t->log, LOG_WARN, "servewright tuner: cannot read %s: %s; NCCL chooses by itself", path, strerror(errno));
        return SUCCESS;
    }
    char line[MAX_LINE];
    size_t room = 0;
    int status = SUCCESS;
    for (int at = 1; fgets(line, sizeof line, file); at++) {
        const char *wrong = NULL;
        if (strlen(line) == sizeof line - 1 && line[sizeof line - 2] != '\n') wrong = "line too long";
        char *text = trim(line);
        if (!wrong && (!*text || *text == '#')) continue;
        if (t->count == room) {
            room = room ? room * 2 : 16;
            row *more = realloc(t->rows, room * sizeof *more);
            if (!more) {
                status = SYSTEM_ERROR;
                break;
            }
            t->rows = more;
        }
        if (!wrong) wrong = parse(text, &t->rows[t->count]);
        if (wrong) {
            SAY(t->log, LOG_WARN, "servewright tuner: %s line %d: %s; NCCL chooses by itself", path, at, wrong);
            t->count = 0;
            break;
        }
        t->count++;
    }
    fclose(file);
    if (t->count) SAY(t->log, LOG_INFO, "servewright tuner: %zu rows from %s", t->count, path);
    return status;
}

static int start(void **context, size_t ranks, size_t nodes, logger log) {
    table *t = calloc(1, sizeof *t);
    if (!t) return SYSTEM_ERROR;
    t->ranks = (int)ranks;
    t->nodes = (int)nodes;
    t->log = log;
    *context = t;
    t->reload = getenv("SERVEWRIGHT_TUNER_RELOAD") != NULL;
    const char *path = getenv("NCCL_TUNER_CONFIG_FILE");
    if (path && *path) return load(t, path);
    SAY(log, LOG_WARN, "servewright tuner: NCCL_TUNER_CONFIG_FILE is not set; NCCL chooses by itself");
    return SUCCESS;
}

static int fits(int wanted, int have) {
    return wanted == -1 || wanted == have;
}

/* costs: one float per algorithm and protocol, lowest wins, negative means NCCL cannot run it here. */
static int choose(table *t, int collective, size_t bytes, int pipe_ops, float *costs, int algorithms, int protocols,
                  int registered, int *channels) {
    const char *path = t->reload ? getenv("NCCL_TUNER_CONFIG_FILE") : NULL;
    if (path) {
        t->count = 0;
        int status = load(t, path);
        if (status) return status;
    }
    for (size_t i = 0; i < t->count; i++) {
        const row *r = &t->rows[i];
        if (r->collective != collective || bytes < r->min_bytes || bytes > r->max_bytes) continue;
        if (!fits(r->nodes, t->nodes) || !fits(r->ranks, t->ranks)) continue;
        if (!fits(r->pipe_ops, pipe_ops) || (registered >= 0 && !fits(r->registered, registered))) continue;
        if (r->algorithm >= algorithms || r->protocol >= protocols) continue;
        float *cost = &costs[r->algorithm * protocols + r->protocol];
        if (*cost < 0) {
            TELL(t->log, "servewright tuner: %s %zu bytes: %s/%s is not available here, next row",
                 COLLECTIVES[collective], bytes, ALGORITHMS[r->algorithm], PROTOCOLS[r->protocol]);
            continue;
        }
        *cost = 0;
        if (r->channels != -1) *channels = r->channels;
        TELL(t->log, "servewright tuner: %s %zu bytes: %s/%s channels %d", COLLECTIVES[collective], bytes,
             ALGORITHMS[r->algorithm], PROTOCOLS[r->protocol], r->channels);
        break;
    }
    return SUCCESS;
}

static int stop(void *context) {
    table *t = context;
    if (t) free(t->rows);
    free(t);
    return SUCCESS;
}

static int start_3(size_t ranks, size_t nodes, logger log, void **context) {
    return start(context, ranks, nodes, log);
}

static int start_5(void **context, uint64_t communicator, size_t ranks, size_t nodes, logger log, void *domains,
                   void *constants) {
    (void)communicator, (void)domains, (void)constants;
    return start(context, ranks, nodes, log);
}

static int choose_3(void *context, int collective, size_t bytes, int pipe_ops, float **costs, int algorithms,
                    int protocols, int *channels) {
    return choose(context, collective, bytes, pipe_ops, (float *)costs, algorithms, protocols, -1, channels);
}

static int choose_4(void *context, int collective, size_t bytes, int pipe_ops, float **costs, int algorithms,
                    int protocols, int registered, int *channels) {
    return choose(context, collective, bytes, pipe_ops, (float *)costs, algorithms, protocols, registered, channels);
}

typedef struct {
    const char *name;
    int (*init)(size_t, size_t, logger, void **);
    int (*get)(void *, int, size_t, int, float **, int, int, int *);
    int (*destroy)(void *);
} interface_3;

typedef struct {
    const char *name;
    int (*init)(size_t, size_t, logger, void **);
    int (*get)(void *, int, size_t, int, float **, int, int, int, int *);
    int (*destroy)(void *);
} interface_4;

typedef struct {
    const char *name;
    int (*init)(void **, uint64_t, size_t, size_t, logger, void *, void *);
    int (*get)(void *, int, size_t, int, float **, int, int, int, int *);
    int (*finalize)(void *);
} interface_5;

const interface_3 ncclTunerPlugin_v3 = {"servewright", start_3, choose_3, stop};
const interface_4 ncclTunerPlugin_v4 = {"servewright", start_3, choose_4, stop};
const interface_5 ncclTunerPlugin_v5 = {"servewright", start_5, choose_4, stop};
