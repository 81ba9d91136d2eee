"""How things are kept alive: processes, supervision, links. Knows no agent, no session, no JSON-RPC."""
