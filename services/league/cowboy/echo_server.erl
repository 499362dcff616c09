%% Sends back what it gets. Usage: erl -s echo_server main -extra PORT
-module(echo_server).
-export([main/0, init/2, websocket_handle/2, websocket_info/2]).

main() ->
    [Port] = init:get_plain_arguments(),
    {ok, _} = application:ensure_all_started(cowboy),
    Dispatch = cowboy_router:compile([{'_', [{"/", ?MODULE, []}]}]),
    Address = [{ip, {127, 0, 0, 1}}, {port, list_to_integer(Port)}],
    {ok, _} = cowboy:start_clear(echo, Address, #{env => #{dispatch => Dispatch}}).

init(Request, State) ->
    {cowboy_websocket, Request, State}.

websocket_handle({Kind, Data}, State) when Kind =:= text; Kind =:= binary ->
    {[{Kind, Data}], State};
websocket_handle(_, State) ->
    {[], State}.

websocket_info(_, State) ->
    {[], State}.
