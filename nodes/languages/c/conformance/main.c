/* Does whatever a test asks of a node: the run's input lists steps, the output lists what came of each. */
#include "twice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static twice_text text_at(twice_json step, const char *key)
{
    twice_text text = {"", 0};
    twice_text_of(twice_get(step, key), &text);
    return text;
}

static uint32_t number_at(twice_json step, const char *key)
{
    uint32_t number = 0;
    twice_u32_of(twice_get(step, key), &number);
    return number;
}

static bool is_left_out(twice_json step)
{
    uint32_t limit;
    return (twice_u32_of(twice_get(step, "until_attempt"), &limit) && twice_attempt() >= limit) ||
           (twice_u32_of(twice_get(step, "until_visit"), &limit) && twice_visit() >= limit) ||
           (twice_u32_of(twice_get(step, "from_visit"), &limit) && twice_visit() < limit);
}

static void put_pair(twice_writer *notes, const char *key, twice_text value, const char *other_key, twice_text other)
{
    twice_object(notes);
    twice_key(notes, key);
    twice_put_text(notes, value);
    twice_key(notes, other_key);
    twice_put_text(notes, other);
    twice_object_end(notes);
}

static void put_answer(twice_writer *notes, twice_answer answer)
{
    switch (answer.outcome) {
    case TWICE_CONFIRMED:
        twice_object(notes);
        twice_key(notes, "effect_id");
        twice_put_text(notes, answer.effect_id);
        twice_key(notes, "body");
        twice_put_json(notes, answer.body);
        twice_object_end(notes);
        break;
    case TWICE_FAILED: put_pair(notes, "failed", answer.code, "message", answer.message); break;
    case TWICE_DENIED: put_pair(notes, "denied", answer.policy, "message", answer.message); break;
    }
}

static twice_call call_of(twice_json step)
{
    twice_call call = {.slot = twice_zero(text_at(step, "slot")), .args = twice_get(step, "args")};
    call.has_item = twice_u32_of(twice_get(step, "item"), &call.item);
    return call;
}

static twice_answer requested(twice_json step)
{
    twice_call call = call_of(step);
    if (call.has_item) return twice_request_item(call.slot, call.item, call.args);
    return twice_request(call.slot, call.args);
}

static void put_answers(twice_writer *notes, twice_json requests)
{
    size_t count = twice_count(requests), i = 0;
    twice_call *calls = twice_allocate(count * sizeof *calls);
    for (twice_each each = twice_each_of(requests); twice_next(&each);) calls[i++] = call_of(each.value);
    twice_answer *answers = twice_request_all(calls, count);
    twice_array(notes);
    for (i = 0; i < count; i++) put_answer(notes, answers[i]);
    twice_array_end(notes);
}

static void put_random(twice_writer *into, uint32_t count)
{
    const uint8_t *bytes = twice_random(count);
    twice_array(into);
    for (uint32_t i = 0; i < count; i++) twice_put_u64(into, bytes[i]);
    twice_array_end(into);
}

static twice_json big(uint32_t bytes)
{
    char *text = twice_allocate(bytes);
    memset(text, 'x', bytes);
    twice_writer args = {0};
    twice_put_text(&args, (twice_text){text, bytes});
    return twice_written(&args);
}

static twice_json deep(uint32_t depth)
{
    twice_writer args = {0};
    for (uint32_t i = 0; i < depth; i++) twice_array(&args);
    twice_put_null(&args);
    for (uint32_t i = 0; i < depth; i++) twice_array_end(&args);
    return twice_written(&args);
}

static twice_json changing(void)
{
    twice_writer args = {0};
    twice_object(&args);
    twice_key(&args, "now");
    twice_put_u64(&args, twice_now());
    twice_key(&args, "random");
    put_random(&args, 8);
    twice_object_end(&args);
    return twice_written(&args);
}

static void put_context(twice_writer *notes)
{
    twice_object(notes);
    twice_key(notes, "run");
    twice_put_text(notes, twice_run_id());
    twice_key(notes, "node");
    twice_put_text(notes, twice_node_name());
    twice_key(notes, "visit");
    twice_put_u64(notes, twice_visit());
    twice_key(notes, "attempt");
    twice_put_u64(notes, twice_attempt());
    twice_object_end(notes);
}

/* What C itself says of time and chance. */
static void put_native(twice_writer *notes)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    twice_object(notes);
    twice_key(notes, "seconds");
    twice_put_i64(notes, now.tv_sec);
    twice_key(notes, "rand");
    twice_put_i64(notes, rand());
    twice_object_end(notes);
}

static twice_level level_of(twice_text level)
{
    if (twice_equal(level, "debug")) return TWICE_DEBUG;
    if (twice_equal(level, "warn")) return TWICE_WARN;
    if (twice_equal(level, "error")) return TWICE_ERROR;
    return TWICE_INFO;
}

static void say(twice_text message)
{
    fwrite(message.at, 1, message.length, stdout);
    putchar('\n');
    fflush(stdout);
}

/* Takes one step. It writes a note, or says that and how the node ends. */
static bool ends(twice_json step, const twice_state *state, twice_writer *notes, twice_end *end)
{
    twice_text what = text_at(step, "do"), message = text_at(step, "message");
    const char *slot = twice_zero(text_at(step, "slot"));
    if (twice_equal(what, "request")) {
        twice_answer answer = requested(step);
        bool must = false;
        twice_bool_of(twice_get(step, "must"), &must);
        if (must && answer.outcome != TWICE_CONFIRMED) {
            *end = twice_refused(&answer);
            return true;
        }
        put_answer(notes, answer);
    } else if (twice_equal(what, "request_all")) {
        put_answers(notes, twice_get(step, "requests"));
    } else if (twice_equal(what, "request_big")) {
        put_answer(notes, twice_request(slot, big(number_at(step, "bytes"))));
    } else if (twice_equal(what, "request_deep")) {
        put_answer(notes, twice_request(slot, deep(number_at(step, "depth"))));
    } else if (twice_equal(what, "request_volatile")) {
        put_answer(notes, twice_request(slot, changing()));
    } else if (twice_equal(what, "retryable")) {
        *end = twice_retryable(message);
        return true;
    } else if (twice_equal(what, "fatal")) {
        *end = twice_fatal(message);
        return true;
    } else if (twice_equal(what, "panic")) {
        twice_panic("%.*s", TWICE_ARG(message));
    } else if (twice_equal(what, "trap")) {
        abort();
    } else if (twice_equal(what, "log")) {
        twice_write(level_of(text_at(step, "level")), message);
        twice_put_null(notes);
    } else if (twice_equal(what, "print")) {
        say(message);
        twice_put_null(notes);
    } else if (twice_equal(what, "now")) {
        twice_put_u64(notes, twice_now());
    } else if (twice_equal(what, "random")) {
        put_random(notes, number_at(step, "count"));
    } else if (twice_equal(what, "context")) {
        put_context(notes);
    } else if (twice_equal(what, "nodes")) {
        twice_put_json(notes, state->nodes);
    } else if (twice_equal(what, "native")) {
        put_native(notes);
    } else if (twice_equal(what, "return")) {
        *end = twice_output(twice_get(step, "output"));
        return true;
    } else {
        *end = twice_fatal(twice_format("there is no step `%.*s`", TWICE_ARG(what)));
        return true;
    }
    return false;
}

twice_end twice_node(const twice_state *state)
{
    twice_json named = twice_get(twice_get(state->input, "nodes"), twice_zero(twice_node_name()));
    twice_json steps = named.at == NULL ? twice_get(state->input, "steps") : named;
    twice_writer notes = {0};
    twice_end end;
    twice_object(&notes);
    twice_key(&notes, "notes");
    twice_array(&notes);
    for (twice_each each = twice_each_of(steps); twice_next(&each);)
        if (!is_left_out(each.value) && ends(each.value, state, &notes, &end)) return end;
    twice_array_end(&notes);
    twice_object_end(&notes);
    return twice_output(twice_written(&notes));
}
