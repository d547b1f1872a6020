#include "twice.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory: chunks, the newest first, that are filled from their beginning. */

typedef struct chunk {
    struct chunk *older;
    size_t used, room;
    _Alignas(max_align_t) char bytes[];
} chunk;

enum { CHUNK_BYTES = 64 * 1024, ALIGN = _Alignof(max_align_t) };

static chunk *newest;

void *twice_allocate(size_t bytes)
{
    size_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (newest == NULL || newest->room - newest->used < whole) {
        size_t room = whole > CHUNK_BYTES ? whole : CHUNK_BYTES;
        chunk *added = whole < bytes ? NULL : malloc(sizeof(chunk) + room);
        if (added == NULL) twice_panic("there is no memory for %zu bytes", bytes);
        added->older = newest;
        added->used = 0;
        added->room = room;
        newest = added;
    }
    void *at = newest->bytes + newest->used;
    newest->used += whole;
    return at;
}

twice_place twice_mark(void)
{
    return (twice_place){newest, newest == NULL ? 0 : newest->used};
}

void twice_release(twice_place place)
{
    while (newest != place.chunk) {
        chunk *older = newest->older;
        free(newest);
        newest = older;
    }
    if (newest != NULL) newest->used = place.used;
}

/* Texts. */

twice_text twice_from(const char *text)
{
    return (twice_text){text, strlen(text)};
}

static twice_text copied(const char *at, size_t length)
{
    char *copy = twice_allocate(length + 1);
    memcpy(copy, at, length);
    copy[length] = 0;
    return (twice_text){copy, length};
}

const char *twice_zero(twice_text text)
{
    return copied(text.length == 0 ? "" : text.at, text.length).at;
}

bool twice_equal(twice_text text, const char *other)
{
    return strlen(other) == text.length && (text.length == 0 || memcmp(text.at, other, text.length) == 0);
}

static twice_text formatted(const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0) return twice_from(format);
    char *text = twice_allocate((size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    return (twice_text){text, (size_t)length};
}

#define FORMATTED(text)                 \
    twice_text text;                    \
    {                                   \
        va_list arguments;              \
        va_start(arguments, format);    \
        text = formatted(format, arguments); \
        va_end(arguments);              \
    }

twice_text twice_format(const char *format, ...)
{
    FORMATTED(text)
    return text;
}

/* Reading JSON. The functions below take where they begin and where the text ends, and return where they end, or NULL if the text
 * is not well-formed. */

static const char *space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) p++;
    return p;
}

static bool is_digit(const char *p, const char *end)
{
    return p < end && *p >= '0' && *p <= '9';
}

static int hex(char digit)
{
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}

static const char *string(const char *p, const char *end)
{
    if (p == end || *p++ != '"') return NULL;
    while (p < end && *p != '"') {
        if ((unsigned char)*p < 0x20) return NULL;
        if (*p++ != '\\') continue;
        if (p == end) return NULL;
        if (*p == 'u') {
            for (int i = 1; i <= 4; i++)
                if (end - p <= i || hex(p[i]) < 0) return NULL;
            p += 5;
        } else if (memchr("\"\\/bfnrt", *p++, 8) == NULL) {
            return NULL;
        }
    }
    return p == end ? NULL : p + 1;
}

static const char *digits(const char *p, const char *end)
{
    if (!is_digit(p, end)) return NULL;
    while (is_digit(p, end)) p++;
    return p;
}

static const char *number(const char *p, const char *end)
{
    if (*p == '-') p++;
    if (p < end && *p == '0')
        p++;
    else if ((p = digits(p, end)) == NULL)
        return NULL;
    if (p < end && *p == '.' && (p = digits(p + 1, end)) == NULL) return NULL;
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        p = digits(p, end);
    }
    return p;
}

static const char *word(const char *p, const char *end, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(end - p) >= length && memcmp(p, word, length) == 0 ? p + length : NULL;
}

static const char *scalar(const char *p, const char *end)
{
    switch (*p) {
    case '"': return string(p, end);
    case 't': return word(p, end, "true");
    case 'f': return word(p, end, "false");
    case 'n': return word(p, end, "null");
    default: return number(p, end);
    }
}

/* A key and its colon. */
static const char *key(const char *p, const char *end)
{
    p = string(space(p, end), end);
    if (p == NULL) return NULL;
    p = space(p, end);
    return p < end && *p == ':' ? p + 1 : NULL;
}

static char *grown(twice_writer *writer, size_t by)
{
    if (writer->room - writer->length < by) {
        size_t room = writer->length + by < 64 ? 64 : (writer->length + by) * 2;
        char *at = twice_allocate(room);
        if (writer->length > 0) memcpy(at, writer->at, writer->length);
        writer->at = at;
        writer->room = room;
    }
    char *at = writer->at + writer->length;
    writer->length += by;
    return at;
}

/* One value. The brackets that are open stand in a list of their own and not on the stack, which a deep text would exhaust. */
static const char *value(const char *p, const char *end)
{
    twice_writer open = {0};
    twice_place before = twice_mark();
    bool whole = false;
    while (p != NULL && !whole) {
        p = space(p, end);
        if (p == end) {
            p = NULL;
        } else if (*p == '{' || *p == '[') {
            char bracket = *p, *top = grown(&open, 1);
            *top = bracket == '{' ? '}' : ']';
            p = space(p + 1, end);
            if (p == end || *p != *top) {
                if (bracket == '{') p = key(p, end);
                continue;
            }
        } else {
            p = scalar(p, end);
        }
        /* A value has ended, or is about to with its bracket. */
        while (p != NULL && !(whole = open.length == 0)) {
            char close = open.at[open.length - 1];
            p = space(p, end);
            if (p < end && *p == close) {
                open.length--;
                p++;
            } else if (p < end && *p == ',') {
                p++;
                if (close == '}') p = key(p, end);
                break;
            } else {
                p = NULL;
            }
        }
    }
    twice_release(before);
    return p;
}

twice_json twice_read(twice_text text)
{
    const char *end = text.at + text.length, *first = space(text.at, end), *last = value(first, end);
    if (last == NULL || space(last, end) != end) return (twice_json){0};
    return (twice_json){first, (size_t)(last - first)};
}

twice_kind twice_kind_of(twice_json json)
{
    if (json.at == NULL) return TWICE_NONE;
    switch (*json.at) {
    case 'n': return TWICE_NULL;
    case 't':
    case 'f': return TWICE_BOOL;
    case '"': return TWICE_STRING;
    case '[': return TWICE_ARRAY;
    case '{': return TWICE_OBJECT;
    default: return TWICE_NUMBER;
    }
}

static uint32_t unit(const char *four)
{
    uint32_t unit = 0;
    for (int i = 0; i < 4; i++) unit = unit << 4 | (uint32_t)hex(four[i]);
    return unit;
}

static char *put_utf8(char *to, uint32_t scalar)
{
    int more = scalar < 0x80 ? 0 : scalar < 0x800 ? 1 : scalar < 0x10000 ? 2 : 3;
    static const uint8_t first[] = {0, 0xC0, 0xE0, 0xF0};
    *to++ = (char)(first[more] | scalar >> 6 * more);
    while (more-- > 0) *to++ = (char)(0x80 | (scalar >> 6 * more & 0x3F));
    return to;
}

/* Reads the escape at `*p`, behind its backslash, and moves `*p` behind it. */
static uint32_t unescaped(const char **p, const char *end)
{
    char escape = *(*p)++;
    switch (escape) {
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'u': break;
    default: return (uint32_t)escape;
    }
    uint32_t high = unit(*p);
    *p += 4;
    if (high < 0xD800 || high > 0xDFFF) return high;
    uint32_t low = high < 0xDC00 && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u' ? unit(*p + 2) : 0;
    if (low < 0xDC00 || low > 0xDFFF) return 0xFFFD;
    *p += 6;
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

/* What stands between the quotes, with its escapes read. */
static twice_text unquoted(const char *p, size_t length)
{
    if (memchr(p, '\\', length) == NULL) return (twice_text){p, length};
    const char *end = p + length;
    char *text = twice_allocate(length), *to = text;
    while (p < end) {
        if (*p != '\\') {
            *to++ = *p++;
            continue;
        }
        p++;
        to = put_utf8(to, unescaped(&p, end));
    }
    return (twice_text){text, (size_t)(to - text)};
}

twice_each twice_each_of(twice_json json)
{
    twice_kind kind = twice_kind_of(json);
    if (kind != TWICE_ARRAY && kind != TWICE_OBJECT) return (twice_each){0};
    return (twice_each){.rest = json.at, .end = json.at + json.length};
}

bool twice_next(twice_each *each)
{
    if (each->rest == NULL) return false;
    /* At the beginning `rest` is at the bracket, later at a comma or at the bracket that closes. */
    const char *p = space(each->rest + 1, each->end);
    if (p >= each->end || *p == '}' || *p == ']') {
        each->rest = NULL;
        return false;
    }
    each->key = (twice_text){0};
    if (each->end[-1] == '}') {
        const char *close = string(p, each->end);
        each->key = unquoted(p + 1, (size_t)(close - p - 2));
        p = space(key(p, each->end), each->end);
    }
    const char *last = value(p, each->end);
    each->value = (twice_json){p, (size_t)(last - p)};
    each->rest = space(last, each->end);
    return true;
}

size_t twice_count(twice_json json)
{
    size_t count = 0;
    for (twice_each each = twice_each_of(json); twice_next(&each);) count++;
    return count;
}

twice_json twice_get(twice_json object, const char *wanted)
{
    if (twice_kind_of(object) == TWICE_OBJECT)
        for (twice_each each = twice_each_of(object); twice_next(&each);)
            if (twice_equal(each.key, wanted)) return each.value;
    return (twice_json){0};
}

bool twice_text_of(twice_json json, twice_text *into)
{
    if (twice_kind_of(json) != TWICE_STRING) return false;
    *into = unquoted(json.at + 1, json.length - 2);
    return true;
}

bool twice_bool_of(twice_json json, bool *into)
{
    if (twice_kind_of(json) != TWICE_BOOL) return false;
    *into = *json.at == 't';
    return true;
}

/* The size of a whole number, if it is at most `most`. */
static bool magnitude(const char *p, const char *end, uint64_t most, uint64_t *into)
{
    uint64_t sum = 0;
    for (; p < end; p++) {
        if (!is_digit(p, end)) return false;
        uint64_t digit = (uint64_t)(*p - '0');
        if (sum > (most - digit) / 10) return false;
        sum = sum * 10 + digit;
    }
    *into = sum;
    return true;
}

bool twice_u64_of(twice_json json, uint64_t *into)
{
    return twice_kind_of(json) == TWICE_NUMBER && magnitude(json.at, json.at + json.length, UINT64_MAX, into);
}

bool twice_u32_of(twice_json json, uint32_t *into)
{
    uint64_t wide;
    if (!twice_u64_of(json, &wide) || wide > UINT32_MAX) return false;
    *into = (uint32_t)wide;
    return true;
}

bool twice_i64_of(twice_json json, int64_t *into)
{
    if (twice_kind_of(json) != TWICE_NUMBER) return false;
    bool negative = *json.at == '-';
    uint64_t size;
    if (!magnitude(json.at + negative, json.at + json.length, (uint64_t)INT64_MAX + negative, &size)) return false;
    *into = (int64_t)(negative ? 0 - size : size);
    return true;
}

bool twice_f64_of(twice_json json, double *into)
{
    if (twice_kind_of(json) != TWICE_NUMBER) return false;
    *into = strtod(twice_zero((twice_text){json.at, json.length}), NULL);
    return true;
}

/* Writing JSON. */

static void put(twice_writer *writer, const char *bytes, size_t length)
{
    memcpy(grown(writer, length), bytes, length);
}

/* What stands last says whether a comma is due. A key ends in a colon, which no value does. */
static void put_comma(twice_writer *writer)
{
    if (writer->length == 0) return;
    char last = writer->at[writer->length - 1];
    if (last != '{' && last != '[' && last != ':') put(writer, ",", 1);
}

static void put_value(twice_writer *writer, const char *bytes, size_t length)
{
    put_comma(writer);
    put(writer, bytes, length);
}

void twice_object(twice_writer *writer) { put_value(writer, "{", 1); }
void twice_object_end(twice_writer *writer) { put(writer, "}", 1); }
void twice_array(twice_writer *writer) { put_value(writer, "[", 1); }
void twice_array_end(twice_writer *writer) { put(writer, "]", 1); }
void twice_put_bool(twice_writer *writer, bool value) { put_value(writer, value ? "true" : "false", value ? 4 : 5); }
void twice_put_null(twice_writer *writer) { put_value(writer, "null", 4); }

void twice_put_text(twice_writer *writer, twice_text text)
{
    static const char hex[] = "0123456789abcdef";
    put_value(writer, "\"", 1);
    size_t plain = 0;
    for (size_t i = 0; i < text.length; i++) {
        unsigned char byte = (unsigned char)text.at[i];
        if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
        put(writer, text.at + plain, i - plain);
        plain = i + 1;
        if (byte >= 0x20)
            put(writer, (char[]){'\\', (char)byte}, 2);
        else
            put(writer, (char[]){'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]}, 6);
    }
    if (text.length > plain) put(writer, text.at + plain, text.length - plain);
    put(writer, "\"", 1);
}

void twice_put_string(twice_writer *writer, const char *value)
{
    twice_put_text(writer, twice_from(value));
}

void twice_key(twice_writer *writer, const char *key)
{
    twice_put_string(writer, key);
    put(writer, ":", 1);
}

void twice_put_u64(twice_writer *writer, uint64_t value)
{
    char text[24];
    put_value(writer, text, (size_t)snprintf(text, sizeof text, "%" PRIu64, value));
}

void twice_put_i64(twice_writer *writer, int64_t value)
{
    char text[24];
    put_value(writer, text, (size_t)snprintf(text, sizeof text, "%" PRId64, value));
}

void twice_put_f64(twice_writer *writer, double value)
{
    char text[32];
    int length = 0;
    if (!isfinite(value)) {
        twice_put_null(writer);
        return;
    }
    /* The fewest digits that give the same number again. */
    for (int precision = 15; precision <= 17; precision++) {
        length = snprintf(text, sizeof text, "%.*g", precision, value);
        if (strtod(text, NULL) == value) break;
    }
    put_value(writer, text, (size_t)length);
}

void twice_put_json(twice_writer *writer, twice_json value)
{
    if (value.at == NULL)
        twice_put_null(writer);
    else
        put_value(writer, value.at, value.length);
}

twice_json twice_written(const twice_writer *writer)
{
    twice_json json = writer->length == 0 ? (twice_json){0} : twice_read((twice_text){writer->at, writer->length});
    if (json.at == NULL) twice_panic("what was written is not one JSON value: %.*s", (int)writer->length, writer->at);
    return json;
}

/* The border: the canonical ABI of wit/node.wit. */

#define IMPORT(interface, function) \
    __attribute__((import_module("twice:node/" interface "@0.1.0"), import_name(function)))
#define EXPORT(function) __attribute__((export_name(function)))

typedef struct {
    twice_text slot;
    uint8_t has_item;
    uint32_t item;
    twice_text args;
} abi_request;

/* A result<receipt, effect-error>. Both refusals are two texts. */
typedef struct {
    uint8_t refused;
    union {
        struct {
            twice_text effect_id, body;
        } receipt;
        struct {
            uint8_t denied;
            twice_text reason, message;
        } refusal;
    };
} abi_answer;

typedef struct {
    abi_answer *at;
    size_t length;
} abi_answers;

/* A result<string, node-error>. */
typedef struct {
    uint8_t failed;
    union {
        twice_text output;
        struct {
            uint8_t fatal;
            twice_text message;
        } error;
    };
} abi_end;

_Static_assert(sizeof(abi_request) == 24 && sizeof(abi_answer) == 24 && sizeof(abi_end) == 16, "the ABI is for 32 bits");

IMPORT("effects", "request")
void abi_perform(const char *slot, size_t slot_length, uint32_t has_item, uint32_t item, const char *args, size_t args_length,
                 abi_answer *into);
IMPORT("effects", "request-all") void abi_perform_all(const abi_request *requests, size_t count, abi_answers *into);
IMPORT("context", "run-id") void abi_run_id(twice_text *into);
IMPORT("context", "node") void abi_node(twice_text *into);
IMPORT("context", "visit") uint32_t abi_visit(void);
IMPORT("context", "attempt") uint32_t abi_attempt(void);
IMPORT("context", "now") uint64_t abi_now(void);
IMPORT("context", "random") void abi_random(uint32_t count, twice_text *into);
IMPORT("log", "write") void abi_write(twice_level level, const char *message, size_t length);

EXPORT("cabi_realloc") void *abi_realloc(void *old, size_t old_bytes, size_t align, size_t bytes)
{
    /* A pointer to nothing needs only its alignment. */
    if (bytes == 0) return (void *)align;
    void *at = twice_allocate(bytes);
    if (old_bytes > 0) memcpy(at, old, old_bytes < bytes ? old_bytes : bytes);
    return at;
}

EXPORT("run") abi_end *abi_run(char *at, size_t length)
{
    static abi_end result;
    twice_json whole = twice_read((twice_text){at, length});
    twice_state state = {twice_get(whole, "input"), twice_get(whole, "nodes"), twice_get(whole, "element")};
    if (twice_kind_of(state.element) == TWICE_NULL) state.element = (twice_json){0};
    twice_end end = state.input.at == NULL ? twice_unfit("there is no `input`") : twice_node(&state);
    if (end.how == TWICE_RETURNED)
        result = (abi_end){.failed = 0, .output = end.said};
    else
        result = (abi_end){.failed = 1, .error = {end.how == TWICE_FATAL, end.said}};
    return &result;
}

EXPORT("cabi_post_run") void abi_post_run(abi_end *result)
{
    (void)result;
    twice_release((twice_place){0});
}

/* The node. */

twice_end twice_output(twice_json output)
{
    if (output.at == NULL) return (twice_end){TWICE_RETURNED, twice_from("null")};
    return (twice_end){TWICE_RETURNED, {output.at, output.length}};
}

twice_end twice_retryable(twice_text message) { return (twice_end){TWICE_RETRYABLE, message}; }
twice_end twice_fatal(twice_text message) { return (twice_end){TWICE_FATAL, message}; }

twice_end twice_unfit(const char *format, ...)
{
    FORMATTED(problem)
    return twice_fatal(
        twice_format("the state does not fit the types of this node: %.*s", TWICE_ARG(problem)));
}

/* Effects. */

static twice_answer answered(const char *slot, const abi_answer *answer)
{
    if (!answer->refused)
        return (twice_answer){
            .slot = slot,
            .outcome = TWICE_CONFIRMED,
            .effect_id = answer->receipt.effect_id,
            .body = twice_read(answer->receipt.body),
        };
    twice_answer refused = {.slot = slot, .message = answer->refusal.message};
    if (answer->refusal.denied) {
        refused.outcome = TWICE_DENIED;
        refused.policy = answer->refusal.reason;
    } else {
        refused.outcome = TWICE_FAILED;
        refused.code = answer->refusal.reason;
    }
    return refused;
}

static twice_text arguments(twice_json args)
{
    return args.at == NULL ? twice_from("null") : (twice_text){args.at, args.length};
}

static twice_answer performed(const char *slot, bool has_item, uint32_t item, twice_json args)
{
    abi_answer answer;
    twice_text text = arguments(args);
    abi_perform(slot, strlen(slot), has_item, item, text.at, text.length, &answer);
    return answered(slot, &answer);
}

twice_answer twice_request(const char *slot, twice_json args)
{
    return performed(slot, false, 0, args);
}

twice_answer twice_request_item(const char *slot, uint32_t item, twice_json args)
{
    return performed(slot, true, item, args);
}

twice_answer *twice_request_all(const twice_call *calls, size_t count)
{
    abi_request *requests = twice_allocate(count * sizeof *requests);
    for (size_t i = 0; i < count; i++)
        requests[i] = (abi_request){twice_from(calls[i].slot), calls[i].has_item, calls[i].item, arguments(calls[i].args)};
    abi_answers all;
    abi_perform_all(requests, count, &all);
    twice_answer *answers = twice_allocate(count * sizeof *answers);
    for (size_t i = 0; i < count; i++) answers[i] = answered(calls[i].slot, &all.at[i]);
    return answers;
}

/* Put together without printf, for which a text ends at its first zero. */
static twice_end ended(const char *slot, const char *how, twice_text what, const char *between, twice_text message)
{
    twice_writer all = {0};
    put(&all, "`", 1);
    put(&all, slot, strlen(slot));
    put(&all, how, strlen(how));
    put(&all, what.at, what.length);
    put(&all, between, strlen(between));
    put(&all, message.at, message.length);
    return twice_fatal((twice_text){all.at, all.length});
}

twice_end twice_refused(const twice_answer *answer)
{
    if (answer->outcome == TWICE_DENIED) return ended(answer->slot, "` is denied by ", answer->policy, ": ", answer->message);
    return ended(answer->slot, "` failed with ", answer->code, ": ", answer->message);
}

twice_end twice_misfit(const twice_answer *answer, const char *problem)
{
    const char *between = "), but its receipt does not fit the node's type: ";
    return ended(answer->slot, "` happened (", answer->effect_id, between, twice_from(problem));
}

/* Context and log. */

static twice_text told(void (*ask)(twice_text *))
{
    twice_text text;
    ask(&text);
    return text;
}

twice_text twice_run_id(void) { return told(abi_run_id); }
twice_text twice_node_name(void) { return told(abi_node); }
uint32_t twice_visit(void) { return abi_visit(); }
uint32_t twice_attempt(void) { return abi_attempt(); }
uint64_t twice_now(void) { return abi_now(); }

const uint8_t *twice_random(uint32_t count)
{
    twice_text bytes;
    abi_random(count, &bytes);
    return (const uint8_t *)bytes.at;
}

void twice_write(twice_level level, twice_text message)
{
    abi_write(level, message.at, message.length);
}

void twice_log(twice_level level, const char *format, ...)
{
    twice_place before = twice_mark();
    FORMATTED(message)
    twice_write(level, message);
    twice_release(before);
}

void twice_panic(const char *format, ...)
{
    /* It may be memory that is missing. */
    static char message[8 * 1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    size_t most = sizeof message - 1, said = length < 0 ? 0 : (size_t)length;
    twice_write(TWICE_ERROR, (twice_text){message, said < most ? said : most});
    abort();
}

/* Debian builds clang's run-time functions (those for 128 bits, say) with a stack protector, which its C library for WASI does not
 * have. */
__attribute__((weak)) uintptr_t __stack_chk_guard = 0x57494345;
__attribute__((weak)) void __stack_chk_fail(void)
{
    twice_panic("the stack was overwritten");
}
