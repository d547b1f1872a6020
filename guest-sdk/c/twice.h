/* Write nodes for Twice in C.
 *
 * A node is one function, twice_node. It gets the state of its run, computes, requests effects from the host, and returns how it
 * ended. It never touches the world itself. In return it may be started any number of times, after any crash: what it requested
 * before is answered from the ledger, and nothing happens a second time.
 *
 * Memory: everything that a function of this header hands out belongs to the call and is given back when the node has ended.
 * There is nothing to free. Texts and JSON that are handed in are only read, and need to last for as long as the call does in
 * which they are handed in, but for those in a twice_end, which are read after the node has returned: they must not lie on its
 * stack. A node that works through much can give memory back earlier, with twice_mark and twice_release.
 */
#ifndef TWICE_H
#define TWICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TWICE_PRINTF __attribute__((format(printf, 1, 2)))

/* Texts. */

/* UTF-8, with its length; there is no zero at its end. */
typedef struct {
    const char *at;
    size_t length;
} twice_text;

/* For `%.*s`, as in printf("%.*s", TWICE_ARG(text)). */
#define TWICE_ARG(text) (int)(text).length, (text).at

/* The text that ends in a zero at `text`. It is not copied. */
twice_text twice_from(const char *text);
/* What printf would print. */
twice_text twice_format(const char *format, ...) TWICE_PRINTF;
/* A copy with a zero at its end. */
const char *twice_zero(twice_text text);
bool twice_equal(twice_text text, const char *other);

/* Memory. */

/* Memory for any type, which lasts until the node has ended. Never NULL: a node without memory ends in a trap. */
void *twice_allocate(size_t bytes);

typedef struct {
    void *chunk;
    size_t used;
} twice_place;

/* Remembers what is in use now. */
twice_place twice_mark(void);
/* Gives back everything that was handed out since. */
void twice_release(twice_place place);

/* JSON that is read. A value is the piece of text in which it stands, so JSON that is only handed on stays as it came, to the last
 * digit. */

/* One JSON value, known to be well-formed; or none, with NULL at `at`. */
typedef struct {
    const char *at;
    size_t length;
} twice_json;

typedef enum {
    TWICE_NONE,
    TWICE_NULL,
    TWICE_BOOL,
    TWICE_NUMBER,
    TWICE_STRING,
    TWICE_ARRAY,
    TWICE_OBJECT,
} twice_kind;

/* Reads a text. It is not copied. No value if the text is not well-formed. */
twice_json twice_read(twice_text text);
twice_kind twice_kind_of(twice_json value);
/* The member `key` of an object. No value if there is none, or if it is no object. */
twice_json twice_get(twice_json object, const char *key);

/* These say whether the value is of the kind, and if so, store it. */
bool twice_text_of(twice_json value, twice_text *into);
bool twice_bool_of(twice_json value, bool *into);
/* Whole numbers that fit, written without a fraction or an exponent. */
bool twice_u64_of(twice_json value, uint64_t *into);
bool twice_u32_of(twice_json value, uint32_t *into);
bool twice_i64_of(twice_json value, int64_t *into);
bool twice_f64_of(twice_json value, double *into);

/* The elements of an array or the members of an object:
 *
 *     twice_each each = twice_each_of(array);
 *     while (twice_next(&each)) use(each.key, each.value);
 */
typedef struct {
    twice_text key;
    twice_json value;
    const char *rest, *end;
} twice_each;

/* Of any other kind there is nothing to go through. */
twice_each twice_each_of(twice_json array_or_object);
bool twice_next(twice_each *each);
/* How many elements or members there are. */
size_t twice_count(twice_json array_or_object);

/* JSON that is written. Commas come by themselves. A writer starts as {0}. */

typedef struct {
    char *at;
    size_t length, room;
} twice_writer;

void twice_object(twice_writer *writer);
void twice_object_end(twice_writer *writer);
void twice_array(twice_writer *writer);
void twice_array_end(twice_writer *writer);
void twice_key(twice_writer *writer, const char *key);
void twice_put_text(twice_writer *writer, twice_text value);
void twice_put_string(twice_writer *writer, const char *value);
void twice_put_bool(twice_writer *writer, bool value);
void twice_put_u64(twice_writer *writer, uint64_t value);
void twice_put_i64(twice_writer *writer, int64_t value);
/* A number that JSON does not have (infinite, or none) becomes null. */
void twice_put_f64(twice_writer *writer, double value);
/* As it came; no value becomes null. */
void twice_put_json(twice_writer *writer, twice_json value);
void twice_put_null(twice_writer *writer);
/* What was written. The writer must have written one whole value; else the node ends in a trap, with a word in the log. */
twice_json twice_written(const twice_writer *writer);

/* The node. */

typedef struct {
    /* The run's input. */
    twice_json input;
    /* An object with the last output of each node that has run, of those whose order before or behind this one is fixed. */
    twice_json nodes;
    /* The element that this step is about, in a fan-out; else none. */
    twice_json element;
} twice_state;

typedef enum {
    TWICE_RETURNED,
    TWICE_RETRYABLE,
    TWICE_FATAL,
} twice_how;

typedef struct {
    twice_how how;
    /* The output, or a message. */
    twice_text said;
} twice_end;

/* The node's work. This is what you write. */
twice_end twice_node(const twice_state *state);

/* Ends the node with an output. */
twice_end twice_output(twice_json output);
/* Starts the step again later, with backoff, as often as the workflow allows. What was confirmed meanwhile stays so. */
twice_end twice_retryable(twice_text message);
/* Ends the run: it fails once each of its effects is known to have happened or not. */
twice_end twice_fatal(twice_text message);
/* Ends the run, since its state is not what the node expects. */
twice_end twice_unfit(const char *format, ...) TWICE_PRINTF;

/* Effects, the only way in which a node reaches the world. A request that cannot be answered yet does not return: the host drops
 * the instance, and starts the node again from the beginning when the answer is known. */

typedef enum {
    TWICE_CONFIRMED,
    /* It did not happen. Final: a restarted node gets the same. */
    TWICE_FAILED,
    /* It is not allowed, and was not sent. Final. */
    TWICE_DENIED,
} twice_outcome;

typedef struct {
    const char *slot;
    twice_outcome outcome;
    /* Of a confirmed effect: its id in the ledger, `eff_…`, and what the tool lets a node see of the provider's result. */
    twice_text effect_id;
    twice_json body;
    /* Of a failed one: a stable word, such as the provider's error code, `http_402` or `exhausted`. */
    twice_text code;
    /* Of a denied one: what refused. */
    twice_text policy;
    /* Of both: for people. */
    twice_text message;
} twice_answer;

/* Requests the effect that the workflow grants under `slot`. No args are null. */
twice_answer twice_request(const char *slot, twice_json args);
/* Requests the effect for element `item`, from 0, of the array that the workflow bound to `slot` with `for_each`. */
twice_answer twice_request_item(const char *slot, uint32_t item, twice_json args);

typedef struct {
    const char *slot;
    /* Whether `item` counts. */
    bool has_item;
    uint32_t item;
    twice_json args;
} twice_call;

/* Requests several, which the host performs concurrently. The `count` answers stand in the order of the calls. When one cannot be
 * answered yet, none is: the node starts again when all can. */
twice_answer *twice_request_all(const twice_call *calls, size_t count);

/* Ends the run because of a refusal: "`slot` failed with CODE: MESSAGE", "`slot` is denied by POLICY: MESSAGE". */
twice_end twice_refused(const twice_answer *answer);
/* Ends the run because the effect happened, but its receipt is not what the node expects. */
twice_end twice_misfit(const twice_answer *answer, const char *problem);

/* What a node may know about where it runs. All of it is durable: a node that is started again sees the same values. */

twice_text twice_run_id(void);
twice_text twice_node_name(void);
/* Which visit of the node in this run, from 1. */
uint32_t twice_visit(void);
/* Which attempt of this visit, from 1. For logs: nothing that is requested may depend on it. */
uint32_t twice_attempt(void);
/* Milliseconds since 1970-01-01T00:00:00Z: when the step became due, moved forward by each answered effect to the time of its
 * answer. */
uint64_t twice_now(void);
/* The next random bytes, at most 65,536. Not secret: whoever knows the run can compute them. */
const uint8_t *twice_random(uint32_t count);

/* The run's log. Messages longer than 8 KiB are cut, and the log of a call ends at the node's limit. */

typedef enum {
    TWICE_DEBUG,
    TWICE_INFO,
    TWICE_WARN,
    TWICE_ERROR,
} twice_level;

void twice_write(twice_level level, twice_text message);
/* Writes what printf would print. */
void twice_log(twice_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes an error to the log and ends the node at once; the step is started again later. For what cannot be. */
void twice_panic(const char *format, ...) __attribute__((noreturn)) TWICE_PRINTF;

#ifdef __cplusplus
}
#endif

#endif
