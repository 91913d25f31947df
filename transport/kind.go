package transport

// Kind classifies failures independently of the protocol. It is itself an error, so that
// errors.Is(err, transport.Throttled) works on everything that Hubline returns.
//
// The list is closed. Package errfilter has the table of the Kinds that are retryable, with
// reasons.
type Kind uint8

// Kinds reported by transports.
const (
	// Unknown: no table of the transport lists the service's answer.
	Unknown Kind = iota
	// Network: the connection was lost, refused or could not be made; this includes a failed name
	// look-up.
	Network
	// Timeout: an answer did not come in time.
	Timeout
	// Unavailable: the service answered that it cannot serve at the moment.
	Unavailable
	// Throttled: the service asks for fewer requests.
	Throttled
	// Quota: an allowance is used up, for example the messages of a day.
	Quota
	// ClockUnset: the local clock is obviously not set, so no token can be signed, or the hub refused
	// a token signed by such a clock.
	ClockUnset
	// Unauthorized: the credentials were refused.
	Unauthorized
	// Untrusted: the service's certificate does not verify, or does not name the host.
	Untrusted
	// Forbidden: the identity is known but lacks the permission.
	Forbidden
	// NotFound: the hub, device or thing addressed does not exist.
	NotFound
	// TooLarge: the message is larger than the service takes.
	TooLarge
	// Invalid: the caller's input is wrong.
	Invalid
	// Conflict: the request conflicts with the state of the service (a version, a lock, a second
	// owner).
	Conflict
	// Unsupported: the protocol or the service does not have the operation.
	Unsupported
	// Protocol: the peer broke the protocol, or reports that this side did.
	Protocol
)

// Kinds added by the device client.
const (
	// RetryExpired: the retry policy or the outage limit ended the retries; the last failure is the
	// cause.
	RetryExpired Kind = iota + Protocol + 1
	// Expired: the message's own expiry time passed before it was acknowledged.
	Expired
	// Dropped: the queue was full and its overflow rule dropped the message.
	Dropped
	// Closed: the client was closed, or is not open.
	Closed
	// Cancelled: the caller's context ended, by cancellation or its deadline, before the result.
	Cancelled
	// Poison: the peer ended one connection after another for this message, and took others. The
	// message was refused so that the queue behind it goes on.
	Poison

	kinds // number of kinds
)

var kindText = [kinds]string{
	Unknown:      "unknown error",
	Network:      "network failure",
	Timeout:      "timed out",
	Unavailable:  "service unavailable",
	Throttled:    "throttled",
	Quota:        "quota exceeded",
	ClockUnset:   "clock not set",
	Unauthorized: "unauthorized",
	Untrusted:    "certificate not trusted",
	Forbidden:    "forbidden",
	NotFound:     "not found",
	TooLarge:     "too large",
	Invalid:      "invalid",
	Conflict:     "conflict",
	Unsupported:  "unsupported",
	Protocol:     "protocol violation",
	RetryExpired: "retries ended",
	Expired:      "message expired",
	Dropped:      "message dropped",
	Closed:       "client closed",
	Cancelled:    "cancelled",
	Poison:       "poison message",
}

// Error returns the kind in a word or two.
func (k Kind) Error() string { return k.String() }

// String returns the kind in a word or two.
func (k Kind) String() string {
	if k >= kinds {
		return "undefined kind"
	}
	return kindText[k]
}
