package provisioning

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// A Carrier carries requests to the service over one protocol. It retries nothing and interprets no
// answer of the service. Its errors are *transport.Error of Scope Connection, also for a refused
// login; a context's end may be any error.
type Carrier interface {
	// Open connects and logs in. It returns when l.Timeout has passed or ctx ends. It may be called
	// concurrently.
	Open(ctx context.Context, l *Login) (Session, error)
}

// A Session is one connection with the service. One goroutine uses it.
type Session interface {
	// Exchange sends one request and returns its answer. It returns when the Timeout of the Login has
	// passed or ctx ends. After an error the session is only closed.
	Exchange(ctx context.Context, r *Request) (*Answer, error)
	// Close closes the connection, within a second.
	Close()
}

// A Limited is a Carrier without calls.
type Limited interface {
	Carrier
	// LacksCalls says why, and what to use.
	LacksCalls() string
}

// A Timekeeper is a Carrier over a protocol that tells the service's time. A Client whose clock is
// wrong makes its tokens by that time, within the bounds that the Timekeeper sets. It is safe for
// concurrent use.
type Timekeeper interface {
	Carrier
	// TokenTime returns when the life of a new token begins: the time of creds, or the service's if
	// that may replace it.
	TokenTime(creds *transport.Credentials) time.Time
	// Corrected reports whether TokenTime would be another one now for a token whose life began at
	// made.
	Corrected(creds *transport.Credentials, made time.Time) bool
	// Outlived reports whether a refused token had expired by the service's clock when it was made.
	Outlived(token transport.Token) bool
	// AskTime asks the service for its time with a request without a token. It returns when l.Timeout
	// has passed or ctx ends. Its errors are those of Open and Exchange.
	AskTime(ctx context.Context, l *Login) error
}

// Login is what a Carrier needs to log in.
type Login struct {
	// Endpoint, IDScope and RegistrationID are those of the Identity.
	Endpoint, IDScope, RegistrationID string
	// APIVersion is the version of the service's API.
	APIVersion string
	// Token authenticates the device. The zero Token: the certificate in the carrier's options does.
	Token transport.Token
	// Timeout bounds Open, and each Exchange.
	Timeout time.Duration
	// Now is the wall clock; never nil.
	Now func() time.Time
}

// Resource returns "SCOPE/registrations/ID", the name of the registration in addresses.
func (l *Login) Resource() string { return l.IDScope + "/registrations/" + l.RegistrationID }

// Credentials returns the endpoint and its login as package transport describes a hub's, for the
// network packages.
func (l *Login) Credentials() *transport.Credentials {
	c := &transport.Credentials{Host: l.Endpoint, DeviceID: l.RegistrationID, Now: l.Now}
	if l.Token.Text.Reveal() != "" {
		c.Token = func(context.Context) (transport.Token, error) { return l.Token, nil }
	}
	return c
}

// Request is one request.
type Request struct {
	// Operation is the id of the operation to poll. Empty: the request registers the device.
	Operation string
	// Call is the name of the operation that Client.Call asks for: ASCII letters, digits and "-".
	// Empty: the request belongs to a registration. A Limited gets none.
	Call string
	// Body is the JSON of a register or call; empty for a poll.
	Body []byte
}

// Answer is the service's answer.
type Answer struct {
	// Status is the HTTP status. 0: the protocol has none for errors, and the code in Body counts.
	Status int
	// RetryAfter is the delay that the service asks for. 0: none.
	RetryAfter time.Duration
	// ErrorCode is the code of an error that HTTPS has in a header (x-ms-error-code). Empty: none.
	ErrorCode string
	// Body is JSON, of at most MaxAnswer bytes.
	Body []byte
}

// MaxAnswer is the maximum size of an answer that a Carrier reads.
const MaxAnswer = 128 << 10
