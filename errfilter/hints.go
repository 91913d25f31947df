package errfilter

import "github.com/hubline-iot/hubline/transport"

// An exception is a case in which the rule is not that of the Kind.
type exception uint8

const (
	none exception = iota
	stopAsked
	violated
	mayBeLifted
	takenOver
	proxyRefused
	noError
)

// Hint says why the rule is as it is, and what helps: one sentence for the reader of the status.
func (r Rule) Hint() string {
	if r.exception != none {
		return exceptionHints[r.exception]
	}
	return hints[OfKind(r.Kind).Kind]
}

var exceptionHints = [...]string{
	stopAsked: "the service asked for no further attempt",
	violated:  "the peer broke the protocol on a connection that had worked; another connection may do better",
	mayBeLifted: "the hub refuses the identity; check the client certificate, and that the device is enabled: it " +
		"is tried again, less and less often",
	takenOver: "two devices with one identity would end each other's connections for ever; give each its own",
	proxyRefused: "the proxy on the way does not connect to the hub; check its URL, user name and password, and that it " +
		"allows the hub's name and port",
	noError: "there is no error",
}

var hints = [len(table)]string{
	transport.Unknown: "the service gave an answer that is not known, and repeating what is not understood may " +
		"do harm",
	transport.Network:     "connections come back",
	transport.Timeout:     "a slow network or service may be faster next time",
	transport.Unavailable: "the service is restarting or moving and will be back",
	transport.Throttled:   "the service takes more when it gets less: wait",
	transport.Quota: "the allowance is refilled with time (a hub's daily quota at 00:00 UTC); buy units or send " +
		"less",
	transport.ClockUnset: "the clock may be set any moment; set it, by SNTP for one",
	transport.Unauthorized: "the same credentials would be refused again; check key or certificate chain, device id, " +
		"the clock, and that the device is enabled",
	transport.Untrusted:    "the same certificate would fail again; check host name, trusted roots and the clock",
	transport.Forbidden:    "the identity lacks the right, or it or the hub is disabled; grant or enable it on the hub",
	transport.NotFound:     "what does not exist will not appear by asking again; check names, and create it",
	transport.TooLarge:     "the same message would be too large again; split it or upload it as a file",
	transport.Invalid:      "the same input would be wrong again; correct the field that the error names",
	transport.Conflict:     "the state must be read again before another attempt",
	transport.Unsupported:  "this protocol or service lacks the operation; if the service has it, use another transport",
	transport.Protocol:     "the peer does not speak the protocol as expected; check host and port",
	transport.RetryExpired: "the retry policy or the outage limit ended the retries; open the client again",
	transport.Expired:      "the message's time is over",
	transport.Dropped:      "the queue was full and made room; enlarge it or send less",
	transport.Closed:       "the client is not open",
	transport.Cancelled:    "the caller's context ended; call again with another",
	transport.Poison: "the same message would end connections again; compare its size and content with the peer's " +
		"limits",
}
