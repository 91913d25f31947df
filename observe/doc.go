// Package observe shows what device clients do: as a log for log/slog, and as health over HTTP, a
// status code for watchdogs and load balancers, and numbers for people and collectors. Package
// device has the events and counters that both are made from; module observe/otel has metrics and
// traces.
//
// # Log
//
//	options := &device.Options{}
//	observe.Log(options, logger.With("device", "dev-1"))
//	client, err := device.New(creds, mqtt.New(nil), options)
//
// # Levels of the log
//
//	Error   the client gave up, or starts over only after TryAgainAfter; a handler panicked
//	Warn    the connection was lost, an attempt failed, sending pauses, Open was cancelled; statuses are missing;
//	        a message came that no handler takes
//	Info    connected; a planned reconnect, for a new token; the clock jumped; closed
//	Debug   each attempt, each session's begin and end, each decision of a policy, messages and verdicts handed over
//
// So Info has the main events of a device in few lines, and Debug has all events. The level is
// checked for each event and may change at any time; a disabled event allocates nothing.
//
// # Attributes of the log
//
// A status has state and reason, and where they apply: retry (the number of the next or running
// attempt), delay (the wait before it), error, kind, cause (the kind of failure that ended the
// retries), scope, op, proto, retry_after (the delay that the service asked for), hint (what
// helps), flaps (consecutive connections that did not last), suspect (the likely cause, if hint
// does not begin with it). Durations are slog durations.
//
// Debug events have took, window and expires (session up), up and the error (session ended), again,
// retry, delay, elapsed, kind, scope and retry_after (decision), messages (handed over), outcome
// (verdict); a clock jump has by, a panic panic, a gap in the statuses missed, a message without
// handler input.
//
// The device's id is not included: add it to the logger. Secrets are not logged. Hubline's errors
// hold none, and in errors of the program's callbacks anything that looks like a secret is hidden,
// such as the value of sig= in a URL. A panic value that is neither a string nor an error is logged
// by its type only.
//
// # Concurrency of the log
//
// Any number of clients may share the hooks, as they may share a logger. Statuses are logged on a
// separate goroutine. With a slow handler the log lags and then has gaps, which it reports; the
// client does not wait for it, except in Close. Debug events, clock jumps and panics are logged on
// the client's goroutines: with Debug enabled, a handler that blocks delays the client.
//
// # Health
//
//	h := &observe.Health{}
//	h.Add("dev-1", client)
//	err := http.ListenAndServe("127.0.0.1:8080", h)
//
// # Answers about health
//
// GET /healthz returns 200 when every client is healthy and 503 otherwise, with one JSON entry for
// each. A client is healthy while it is connected, also while sending is paused, and while it has
// been trying to connect for less than Health.Grace. A client that does not try (not opened, given
// up, closed) is unhealthy. Without clients the answer is 200.
//
// GET /stats always returns 200, with device.Status and device.Stats of each client in JSON.
// Durations are decimal numbers of seconds, as their names say; times are in UTC by the device's
// clock, RFC 3339. Later versions may add names, and never remove one.
//
// Both take ?client=NAME to select one client; an unknown one is 404. HEAD is GET without a body.
// Other methods are 405, other paths 404; below a prefix use http.StripPrefix. Responses forbid
// caching.
//
// # Security of the answers
//
// Secrets are never included: the handler never sees keys or tokens, Hubline's errors hold none,
// and in errors of the program's callbacks anything that looks like a secret is hidden, such as the
// value of sig= in a URL. Everyone who can connect can read error texts, names and counts, so
// restrict the listener's address.
//
// An unreachable hub makes clients unhealthy, and a restart of the program does not fix that. A
// restart loses the messages in an in-memory queue, so use /healthz to raise alarms rather than to
// kill the program.
package observe
