/* Greets. Requests nothing. */
#include "twice.hpp"

twice::result twice::node(const twice::state &state)
{
    auto name = state.input["name"].as<std::string>().value_or("world");
    return twice::object({{"greeting", "Hello, " + name + "!"}});
}
