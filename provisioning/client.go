package provisioning

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Options are the settings of a Client. The zero value and nil mean all defaults.
type Options struct {
	// Payload is JSON for the back end's allocation function. Nil: none.
	Payload []byte
	// CSR is a certificate signing request (PKCS #10, DER), whose common name is the registration id.
	// The service issues a certificate for it if the enrollment allows that: Assignment.Chain. Empty:
	// none.
	CSR []byte
	// MQTTv5 says that the program speaks with hubs of the connection profile mqttV5, too: see
	// Assignment.MQTTv5. Otherwise an assignment to such a hub fails with Kind Unsupported.
	MQTTv5 bool
	// APIVersion is the version of the service's API to ask for. Empty: "2019-03-31", which every
	// service has. With a CSR "2026-11-01", the first stable version with requests for certificates.
	// With MQTTv5 "2026-11-02-preview", the first one that tells the hub's connection profile. That is
	// also the version of Client.Call.
	APIVersion string

	// Policy decides about retries. Nil: delays from 1 s, doubling to 60 s, with jitter, for as long
	// as the context of Register lasts. After throttling 10 s at least; a throttled register adds up
	// to a minute at random, and after the second time in a row up to three. The second retry and
	// later ones come after 100 ms at least.
	Policy retrypolicy.Policy
	// PollInterval is the minimum time between two polls; the service may ask for more. 0: 2 s.
	PollInterval time.Duration
	// RequestTimeout bounds a connection with its login, and each request. 0: 60 s.
	RequestTimeout time.Duration
	// Spread is the maximum of a random wait before the first request of Register. Set it for devices
	// that start together, as after an outage of power: the service takes 1,000 registrations a
	// minute. 0: no wait.
	Spread time.Duration
	// AwaitEnrollment goes on when the device is not enrolled (code 404201), with long delays, for
	// devices that may start before their enrollment.
	AwaitEnrollment bool

	// OnEvent receives each step of Register and each other key or token of Call, on the goroutine
	// that called it.
	OnEvent func(Event)
	// Rand is the source of random numbers; concurrent calls of Register share it. Nil: a generator
	// for each call, seeded with the identity and the time.
	Rand func() uint64
}

const (
	defaultPollInterval   = 2 * time.Second
	defaultRequestTimeout = 60 * time.Second
	// maxBody is the service's limit for a request.
	maxBody = 96 << 10
)

// Versions of the service's API: the common one, the first stable one with signing requests, and
// the first one with connection profiles and with calls.
const (
	apiVersion        = "2019-03-31"
	apiVersionCSR     = "2026-11-01"
	apiVersionPreview = "2026-11-02-preview"
)

// Client registers one device, and makes its calls. It may be used any number of times, and
// concurrently: attempts to register and calls take turns on one connection. Make it with New.
type Client struct {
	id      Identity
	carrier Carrier
	keeper  Timekeeper // the carrier; nil: its protocol tells no time
	opt     Options
	paced   bool // the policy is the default one
	body    []byte
	version string
	shared  *shared
}

// New returns a client for the device that id names; nil options mean all defaults. Both are
// copied. It dials nothing. The error is a *transport.Error of Kind Invalid that names the wrong
// field, or of Kind TooLarge.
func New(id *Identity, carrier Carrier, o *Options) (*Client, error) {
	if id == nil {
		return nil, invalid("identity is nil" + hint("; give one"))
	}
	if err := id.Validate(); err != nil {
		return nil, err
	}
	if carrier == nil {
		return nil, invalid("carrier is nil" + hint("; packages dpshttp, dpsmqtt and dpsamqp have one"))
	}
	if err := id.checkTPMCarrier(carrier); err != nil {
		return nil, err
	}
	c := &Client{id: id.resolved(), carrier: carrier, shared: &shared{turn: make(chan struct{}, 1)}}
	c.keeper, _ = carrier.(Timekeeper)
	if o != nil {
		c.opt = *o
	}
	if err := c.resolve(); err != nil {
		return nil, err
	}
	return c, c.encode()
}

// resolve sets the defaults of the options.
func (c *Client) resolve() error {
	o := &c.opt
	for _, d := range [...]struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"PollInterval", &o.PollInterval, defaultPollInterval},
		{"RequestTimeout", &o.RequestTimeout, defaultRequestTimeout},
		{"Spread", &o.Spread, 0},
	} {
		switch {
		case *d.value < 0:
			return invalid("options: " + d.name + " is negative" + hint("; give a positive duration, or 0 for the default"))
		case *d.value == 0:
			*d.value = d.def
		}
		*d.value = times.Cap(*d.value)
	}
	if o.Policy == nil {
		o.Policy, c.paced = reconnect.Register, true
		return nil
	}
	return retrypolicy.Validate(o.Policy)
}

// validVersion reports whether s has the characters of a date, with "-preview" after it. It goes
// into user names and URLs.
func validVersion(s string) bool {
	for i := range len(s) {
		if c := s[i]; !('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || c == '-') {
			return false
		}
	}
	return len(s) <= 32
}

// encode makes the body of a register, and chooses the version of the API.
func (c *Client) encode() error {
	c.version = c.opt.APIVersion
	switch {
	case !validVersion(c.version):
		return invalid("options: APIVersion is no version" + hint(`; give one such as "2026-11-01"`))
	case c.version == "" && (c.opt.MQTTv5 || c.shared.hold != nil):
		c.version = apiVersionPreview
	case c.version == "" && len(c.opt.CSR) > 0:
		c.version = apiVersionCSR
	case c.version == "":
		c.version = apiVersion
	}
	b := append([]byte(`{"registrationId":"`), c.id.RegistrationID...)
	b = append(b, '"')
	if p := c.opt.Payload; p != nil {
		if !jsonscan.Valid(p) {
			return invalid("options: Payload is not JSON" + hint("; give one JSON value"))
		}
		b = append(append(b, `,"payload":`...), p...)
	}
	b, err := c.appendCSR(b)
	if err != nil {
		return err
	}
	if c.body = append(b, '}'); len(c.body) > maxBody {
		return tooLarge("Payload", len(c.body), maxBody)
	}
	return nil
}

func tooLarge(field string, size, limit int) *transport.Error {
	return &transport.Error{Kind: transport.TooLarge, Op: transport.OpRegister, Err: errors.New("options: " + field +
		" makes " + strconv.Itoa(size) + " bytes; the service takes " + strconv.Itoa(limit))}
}

// Register registers the device and waits for its assignment. It ends when ctx does, or when the
// service refuses the device for good, or when the policy stops. The package documentation lists
// the errors.
func (c *Client) Register(ctx context.Context) (*Assignment, error) {
	r := &registration{c: c, ctx: ctx, rand: c.source(), line: &c.shared.line}
	defer c.shared.closeIdle()
	a, err := r.run()
	r.end(err)
	return a, err
}

// source returns the source of random numbers of one registration.
func (c *Client) source() func() uint64 {
	if c.opt.Rand != nil {
		return c.opt.Rand
	}
	return rand.NewPCG(texts.Hash(c.id.resource()), uint64(time.Now().UnixNano())).Uint64
}

// Attempts returns a registration whose caller waits between its attempts, as a device does that
// sleeps meanwhile. Register is a loop around such attempts.
func (c *Client) Attempts() *Attempts {
	r := registration{c: c, rand: c.source(), line: &c.shared.line}
	return &Attempts{r}
}

// Attempts is a registration. One goroutine uses it. Make it with Client.Attempts.
type Attempts struct{ r registration }

// Spread returns the random wait before the first attempt (Options.Spread), for a caller that waits
// itself; 0 if there is none. Otherwise the first Next waits.
func (s *Attempts) Spread() time.Duration { return s.r.spread() }

// Next makes one attempt: it registers, or goes on with the operation of the attempt before, and
// returns with an assignment or a failure. After a failure that Register would repeat, retry is the
// delay before the next call of Next. Otherwise retry is negative, and the Attempts are used up. No
// connection is kept between two calls.
func (s *Attempts) Next(ctx context.Context) (a *Assignment, retry time.Duration, err error) {
	r := &s.r
	r.ctx = ctx
	defer r.c.shared.closeIdle()
	a, wait, err := r.next()
	if a == nil && err == nil {
		r.publish(wait)
		return nil, wait.Delay, wait.Err
	}
	r.end(err)
	return a, -1, err
}

// WithCSR returns a client that differs from c only in Options.CSR. The error is that of New.
func (c *Client) WithCSR(csr []byte) (*Client, error) {
	other := *c
	other.opt.CSR = csr
	return &other, other.encode()
}
