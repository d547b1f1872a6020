/* Greets. Requests nothing. */
#include "twice.h"

twice_end twice_node(const twice_state *state)
{
    twice_text name = twice_from("world");
    twice_text_of(twice_get(state->input, "name"), &name);

    twice_writer output = {0};
    twice_object(&output);
    twice_key(&output, "greeting");
    twice_put_text(&output, twice_format("Hello, %.*s!", TWICE_ARG(name)));
    twice_object_end(&output);
    return twice_output(twice_written(&output));
}
