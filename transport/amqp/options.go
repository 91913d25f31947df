package amqp

import (
	"context"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/percent"
	"github.com/hubline-iot/hubline/internal/timespan"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Auth is how a device proves who it is.
type Auth uint8

const (
	// AuthDefault: CBS when the credentials make tokens, and nothing beyond the client certificate of
	// TLS when they do not. With Addresses: PLAIN when Login is set, else ANONYMOUS.
	AuthDefault Auth = iota
	// CBS: the token is put to the hub over the open connection, and renewed there without a
	// disconnect.
	CBS
	// Plain: SASL PLAIN, with what Login returns. Without Login: the hub's user name for the device,
	// and the token. A hub closes the connection when the token runs out, so it is renewed by a new
	// connection.
	Plain
	// External: SASL EXTERNAL; the client certificate of TLS says who it is.
	External
	// Anonymous: SASL ANONYMOUS, and no token is sent.
	Anonymous

	auths // number of ways
)

var authText = [auths]string{AuthDefault: "default", CBS: "CBS", Plain: "PLAIN", External: "EXTERNAL",
	Anonymous: "ANONYMOUS"}

// String names the way.
func (a Auth) String() string {
	if a >= auths {
		return "undefined"
	}
	return authText[a]
}

// Addresses are where a broker that is no hub takes and gives messages. "{device}" and "{module}"
// in them stand for the ids. Messages are sent as durable, so that a broker with a queue that is
// durable too keeps over its restart what it has acknowledged.
type Addresses struct {
	// Telemetry is the target to send to, such as "/queue/telemetry". Required.
	Telemetry string
	// CloudToDevice is the source to receive messages from. Empty: there is none, and OpSubscribe is
	// unsupported.
	CloudToDevice string

	twin, methods string // of a hub
}

// Options are the settings of a Transport or a Mux. The zero value and nil mean all defaults: TLS
// to port 5671 of the credentials' host.
type Options struct {
	// Network says how to reach the hub.
	Network netopt.Options

	// Auth is how the device proves who it is. Default: AuthDefault.
	Auth Auth
	// Login returns user name and password for SASL PLAIN. It is asked at each dial. Nil: see Plain.
	Login func(ctx context.Context) (user, password string, err error)
	// Addresses make the transport talk to a broker that is no hub: no CBS, no batches, no properties
	// of links. Nil: a hub.
	Addresses *Addresses

	// IdleTimeout is how long the hub may be silent before the connection counts as lost, 2 s at
	// least. The hub is asked to say something each half of this. While it owes an answer the
	// connection is lost after half of this, or after 10 s if that is longer, but not later than
	// without. 0: 60 s.
	IdleTimeout time.Duration
	// OperationTimeout bounds the wait for each answer of the hub to what opens or settles something:
	// a session, a link, a token; and the dial of a Mux. It starts again while the hub answers what
	// was sent before. 0: 20 s.
	OperationTimeout time.Duration
	// CreditTimeout is how long the hub may leave a link without credit, while messages wait, before
	// those are reported as Throttled. When it is the whole session of AMQP that may not send, the
	// device's session ends instead, with Timeout. 0: 20 s.
	CreditTimeout time.Duration
	// Batch is the most messages that travel in one transfer, up to 500: those that wait at the same
	// moment go together, 24 KB of them or a larger one, and share one answer of the hub. 1: each goes
	// alone, as a plain message, whose properties are in no order. 0: 100; with Addresses always 1.
	Batch int

	// ModelID is the Plug and Play model that the device says it follows, such as
	// "dtmi:com:example:Thermostat;1". Empty: none.
	ModelID string

	// Devices is the most that share the connection of a Mux, 1 to 8,000. 0: 1,000. A Transport does
	// not look at it.
	Devices int
	// Parallel is how many devices of a Mux are authenticated at a time, so that a thousand that lost
	// their connection do not come back in one burst. One whose token takes more than a second is not
	// counted any more. 0: 16.
	Parallel int
}

// maxBatch is the most messages that a hub takes in a batch.
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
		*d.value = timespan.Cap(*d.value)
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
		return r, protocol.Invalid("options: Auth is not one of AuthDefault, CBS, Plain, External, Anonymous")
	case r.Addresses != nil && r.Addresses.Telemetry == "":
		return r, protocol.Invalid("options: Addresses has no Telemetry; give the address to send to")
	case r.Addresses != nil && r.Auth == CBS:
		return r, protocol.Invalid("options: Auth is CBS, which brokers with Addresses of their own do not have; use " +
			"Plain, External or Anonymous")
	case r.Login != nil && r.Auth != Plain && (r.Auth != AuthDefault || r.Addresses == nil):
		return r, protocol.Invalid("options: Login is set, but Auth is " + r.Auth.String() + "; set Auth to Plain")
	case r.ModelID != "" && !strings.HasPrefix(r.ModelID, "dtmi:"):
		return r, protocol.Invalid("options: ModelID " + strconv.Quote(r.ModelID) + " is no model; give one such as " +
			"\"dtmi:com:example:Thermostat;1\"")
	}
	// What cannot be encoded into an attach or open would cost the whole connection.
	texts := []struct{ name, value string }{{"ProductInfo", r.Network.ProductInfo}, {"ModelID", r.ModelID}}
	if a := r.Addresses; a != nil {
		own := *a
		r.Addresses = &own
		texts = append(texts, []struct {
			name, value string
		}{{"Addresses.Telemetry", a.Telemetry}, {"Addresses.CloudToDevice", a.CloudToDevice}}...)
	}
	for _, f := range texts {
		if len(f.value) > maxInfo {
			return r, protocol.Invalid("options: " + f.name + " has " + strconv.Itoa(len(f.value)) + " bytes; give " +
				strconv.Itoa(maxInfo) + " at most")
		}
		if !utf8.ValidString(f.value) {
			return r, protocol.Invalid("options: " + f.name + " is not valid UTF-8")
		}
	}
	d := r.dialer()
	if err := d.Resolve(); err != nil {
		return r, err
	}
	r.Network = d.Network
	return r, nil
}

// maxInfo bounds texts that go into frames which cannot be split.
const maxInfo = 1024

func (o *Options) dialer() *dialer.Dialer {
	return &dialer.Dialer{Protocol: &protocol, Network: o.Network}
}

// auth is how these credentials are proved.
func (o *Options) auth(creds *transport.Credentials) Auth {
	switch {
	case o.Auth != AuthDefault:
		return o.Auth
	case o.Addresses != nil && o.Login != nil:
		return Plain
	case o.Addresses != nil:
		return Anonymous
	case creds.Sign != nil || creds.Token != nil:
		return CBS
	}
	return AuthDefault
}

// addresses are those of an identity.
func (o *Options) addresses(creds *transport.Credentials) Addresses {
	if a := o.Addresses; a != nil {
		fill := strings.NewReplacer("{device}", creds.DeviceID, "{module}", creds.ModuleID)
		return Addresses{Telemetry: fill.Replace(a.Telemetry), CloudToDevice: fill.Replace(a.CloudToDevice)}
	}
	path := string(percent.Append([]byte("/devices/"), creds.DeviceID))
	if creds.ModuleID != "" {
		path = string(percent.Append([]byte(path+"/modules/"), creds.ModuleID))
	}
	return Addresses{path + "/messages/events", path + "/messages/devicebound", path + "/twin",
		path + "/methods/devicebound"}
}

// userName is the hub's for an identity, in SASL PLAIN.
func userName(creds *transport.Credentials) string {
	hub, _, _ := strings.Cut(creds.Host, ".")
	id := creds.DeviceID
	if creds.ModuleID != "" {
		id += "/" + creds.ModuleID
	}
	return id + "@sas." + hub
}

// apiVersion is the version of the hub's interface.
const apiVersion = "2021-04-12"

// linkProperties are what a hub is told with each link. Nil for other brokers.
func (o *Options) linkProperties() map[string]any {
	if o.Addresses != nil {
		return nil
	}
	p := map[string]any{"com.microsoft:client-version": dialer.Agent(o.Network.ProductInfo),
		"com.microsoft:api-version": apiVersion}
	if o.ModelID != "" {
		p["com.microsoft:model-id"] = o.ModelID
	}
	return p
}
