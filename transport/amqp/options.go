package amqp

import (
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp/internal/message"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Auth is a method of authentication.
type Auth uint8

const (
	// AuthDefault is CBS for credentials with Sign or Token, and otherwise the TLS client certificate
	// alone. With Addresses it is Plain for credentials with UserName, and otherwise Anonymous.
	AuthDefault Auth = iota
	// AuthCBS puts the token to the hub over the open connection, and renews it there without a
	// disconnect. The connection begins without SASL. A peer that insists on SASL is dialed once more,
	// with MSSBCBS or ANONYMOUS, whichever it offers.
	AuthCBS
	// AuthPlain is SASL PLAIN: the token is the password. With Addresses the user is
	// Credentials.UserName; a hub has a user name of its own for each device. The connection ends when
	// the token expires, so it is renewed by a new connection.
	AuthPlain
	// AuthExternal is SASL EXTERNAL: the TLS client certificate proves the identity.
	AuthExternal
	// AuthAnonymous is SASL ANONYMOUS, without a token.
	AuthAnonymous

	auths // number of values
)

var authText = [auths]string{AuthDefault: "default", AuthCBS: "CBS", AuthPlain: "PLAIN", AuthExternal: "EXTERNAL",
	AuthAnonymous: "ANONYMOUS"}

// String returns the name.
func (a Auth) String() string {
	if a >= auths {
		return "undefined"
	}
	return authText[a]
}

// Addresses are the addresses of links to a broker other than IoT Hub. In them "{device}" and
// "{module}" stand for the ids of the credentials. Messages are sent as durable, so a durable queue
// keeps acknowledged messages over a restart of the broker.
type Addresses struct {
	// Telemetry is the target to send to, such as "/queues/telemetry". Required.
	Telemetry string
	// Commands is the source of messages for the device, which go to the handler of
	// device.Client.HandleMessages. Empty: none, and it fails with Unsupported.
	Commands string

	twin, methods string // of a hub
}

// Options are the settings of a Transport or a Mux. The zero value and nil mean all defaults: TLS
// to port 5671 of the credentials' host.
type Options struct {
	// Network are the settings of the connection below AMQP.
	Network netopt.Options

	// Auth is the device's method of authentication. 0: AuthDefault.
	Auth Auth
	// Addresses are for a broker other than IoT Hub, which gets no tokens, batches or link properties.
	// Nil: IoT Hub.
	Addresses *Addresses

	// IdleTimeout is how long the hub may be silent before the connection counts as lost. The least is
	// 2 s. The hub is asked to send a frame every half of it. While the hub owes an answer the limit
	// is shorter: half of IdleTimeout, or 10 s if that is longer, but not more than IdleTimeout.
	// 0: 60 s.
	IdleTimeout time.Duration
	// OperationTimeout bounds the wait for the hub's answer to a session, a link, a token or a
	// subscription to desired properties. It begins again while the hub answers earlier requests. It
	// also bounds a renewal, token source and hub together, and the dial of a Mux, each as a whole.
	// 0: 20 s.
	OperationTimeout time.Duration
	// CreditTimeout is how long messages may wait for link credit before they fail with Throttled.
	// When the window of the AMQP session is closed for that long, the device's session ends instead,
	// with Timeout. 0: 20 s.
	CreditTimeout time.Duration
	// Batch is the most messages in one transfer, up to 500. Queued messages are sent together, up to
	// 24 KB or one larger message, and share one outcome. 1: each is sent alone. 0: 100; with
	// Addresses always 1.
	Batch int

	// ModelID is the Plug and Play model of the device, such as "dtmi:com:example:Thermostat;1".
	// Empty: none.
	ModelID string

	// Devices is the most devices of a Mux, 1 to 8,000. 0: 1,000. A Transport ignores it.
	Devices int
	// Parallel is how many devices of a Mux authenticate at a time, 1 to 1,000, so that a thousand
	// devices do not return in one burst. After a second a device gives its place to the next one,
	// although its token is still in flight: a slow token does not block the others. 0: 16. A
	// Transport ignores it.
	Parallel int
}

// maxBatch is the most messages that a hub accepts in a batch.
const maxBatch = 500

// resolve returns a copy with the defaults in place, or an *Error of Kind Invalid about the first
// wrong field.
func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	for _, d := range [...]struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"IdleTimeout", &r.IdleTimeout, 60 * time.Second},
		{"OperationTimeout", &r.OperationTimeout, 20 * time.Second},
		{"CreditTimeout", &r.CreditTimeout, 20 * time.Second},
	} {
		*d.value = times.Cap(*d.value)
		switch {
		case *d.value < 0:
			return r, protocol.Invalid("options: " + d.name + " is negative; give a positive duration, or 0 for " +
				d.def.String())
		case *d.value == 0:
			*d.value = d.def
		}
	}
	if r.IdleTimeout < 2*time.Second {
		return r, protocol.Invalid("options: IdleTimeout is " + r.IdleTimeout.String() + "; give 2s or more")
	}
	if r.Addresses != nil {
		r.Batch = 1
	}
	for _, d := range [...]struct {
		name      string
		value     *int
		def, most int
	}{
		{"Batch", &r.Batch, 100, maxBatch},
		{"Devices", &r.Devices, 1000, 8000},
		{"Parallel", &r.Parallel, 16, 1000},
	} {
		switch {
		case *d.value < 0 || *d.value > d.most:
			return r, protocol.Invalid("options: " + d.name + " is " + strconv.Itoa(*d.value) + "; give 1 to " +
				strconv.Itoa(d.most) + ", or 0 for " + strconv.Itoa(d.def))
		case *d.value == 0:
			*d.value = d.def
		}
	}
	switch {
	case r.Auth >= auths:
		return r, protocol.Invalid("options: Auth is not one of AuthDefault, AuthCBS, Plain, External, Anonymous")
	case r.Addresses != nil && r.Addresses.Telemetry == "":
		return r, protocol.Invalid("options: Addresses has no Telemetry; give the address to send to")
	case r.Addresses != nil && r.Auth == AuthCBS:
		return r, protocol.Invalid("options: Auth is CBS, which brokers with Addresses of their own do not have; use " +
			"Plain, External or Anonymous")
	case r.ModelID != "" && !strings.HasPrefix(r.ModelID, "dtmi:"):
		return r, protocol.Invalid("options: ModelID " + strconv.Quote(r.ModelID) + " is not a model id; give one such as " +
			"\"dtmi:com:example:Thermostat;1\"")
	}
	texts := []struct{ name, value string }{{"ProductInfo", r.Network.ProductInfo}, {"ModelID", r.ModelID}}
	if a := r.Addresses; a != nil {
		own := *a
		r.Addresses = &own
		texts = append(texts, []struct {
			name, value string
		}{{"Addresses.Telemetry", a.Telemetry}, {"Addresses.Commands", a.Commands}}...)
	}
	for _, f := range texts {
		if problem := amqpclient.TextProblem(f.name, f.value); problem != "" {
			return r, protocol.Invalid("options: " + problem)
		}
	}
	d := r.dialer()
	if err := d.Resolve(); err != nil {
		return r, err
	}
	r.Network = d.Network
	return r, nil
}

// dialer makes the connection below AMQP.
func (o *Options) dialer() *dialer.Dialer {
	return &dialer.Dialer{Protocol: &protocol, Network: o.Network}
}

// auth returns the method by which credentials authenticate.
func (o *Options) auth(creds *transport.Credentials) Auth {
	switch {
	case o.Auth != AuthDefault:
		return o.Auth
	case o.Addresses != nil && creds.UserName != "":
		return AuthPlain
	case o.Addresses != nil:
		return AuthAnonymous
	case creds.Sign != nil || creds.Token != nil:
		return AuthCBS
	}
	return AuthDefault
}

// addresses returns the addresses of an identity. Its error is of Kind Invalid.
func (o *Options) addresses(creds *transport.Credentials) (Addresses, error) {
	if a := o.Addresses; a != nil {
		var filled Addresses
		for _, f := range [...]struct {
			name, value string
			to          *string
		}{{"Telemetry", a.Telemetry, &filled.Telemetry}, {"Commands", a.Commands, &filled.Commands}} {
			var problem string
			if *f.to, problem = texts.FillIDs(f.value, creds.DeviceID, creds.ModuleID); problem != "" {
				return Addresses{}, protocol.Invalid("options: Addresses." + f.name + " " + strconv.Quote(f.value) + " " + problem)
			}
		}
		return filled, nil
	}
	if creds.UserName != "" {
		return Addresses{},
			protocol.Invalid("credentials: UserName is set, and a hub makes its own; leave it empty, or set " +
				"Options.Addresses for a broker that is no hub")
	}
	telemetry, commands, twin, methods := message.Addresses(creds)
	return Addresses{telemetry, commands, twin, methods}, nil
}

// hubMaxMessage is the max-message-size of receiving links to IoT Hub, where 128 KB is the largest
// payload.
const hubMaxMessage = 1 << 20

// maxMessageSize returns the max-message-size of receiving links. Other brokers get none: one that
// has a larger message would have to end the link [AMQP 1.0, 2.7.3], again and again.
func (o *Options) maxMessageSize() uint64 {
	if o.Addresses != nil {
		return 0
	}
	return hubMaxMessage
}

// user returns the user name with which the identity authenticates; empty without one.
func (o *Options) user(creds *transport.Credentials) string {
	if o.auth(creds) != AuthPlain {
		return ""
	}
	return o.userName(creds)
}

// userName returns the user name of an identity for SASL PLAIN.
func (o *Options) userName(creds *transport.Credentials) string {
	if o.Addresses != nil {
		return creds.UserName
	}
	hub, _, _ := strings.Cut(creds.Host, ".")
	id := creds.DeviceID
	if creds.ModuleID != "" {
		id += "/" + creds.ModuleID
	}
	return id + "@sas." + hub
}

// apiVersion is the version of the service's API.
const apiVersion = "2021-04-12"

// linkProperties are the properties of each link to a hub. Nil for other brokers.
func (o *Options) linkProperties() wire.Map {
	if o.Addresses != nil {
		return nil
	}
	p := wire.Map{{Key: wire.Symbol("com.microsoft:client-version"), Value: dialer.Agent(o.Network.ProductInfo)},
		{Key: wire.Symbol("com.microsoft:api-version"), Value: apiVersion}}
	if o.ModelID != "" {
		p = append(p, wire.Pair{Key: wire.Symbol("com.microsoft:model-id"), Value: o.ModelID})
	}
	return p
}
