// Package nexthub is the dialect of IoT hubs with the MQTT v5 connection profile, for
// Options.Dialect of packages mqtt and engine:
//
//	client, err := device.New(creds, mqtt.New(&mqtt.Options{
//		Network: netopt.Options{Certificate: certificate}, Dialect: &nexthub.Hub{}}), nil)
//
// Such a hub is chosen when it is made, and provisioning tells which kind a hub is: the client does
// not guess it. Telemetry, the twin and direct methods work as on a classic hub, with the same
// program. The hub has neither cloud-to-device messages, file uploads, modules, certificates over
// the connection, nor Plug and Play model ids: what needs them is refused at the call.
//
// The service is a preview. What its next version may change stands in package nextwire; points
// that its documents leave open are marked with "Decision" in the code, and docs/next-hub.md lists
// them.
//
// # Connecting
//
// The hub takes MQTT 5 and X.509 client certificates only. A connection counts as connected when
// the hub has answered the birth of this connection, within a minute after it was sent. So a hub
// that accepts connections and answers no birth is tried with growing delays.
//
// A refused identity is tried again after 5 minutes, and then less and less often, up to an hour:
// somebody may enable the device. Package dpstransport asks the provisioning service meanwhile.
// When another connection takes over the session, two devices have one identity: the client ends,
// with a Conflict. A server to which the hub sends the device is connected to if its certificate is
// valid for that name.
//
// # Telemetry
//
// It goes to the hub's routes, or with Message.Topic to a custom topic of the hub, in which
// "{deviceId}" stands for the own id. A hub of this kind has no endpoint for messages that no route
// takes.
package nexthub

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// Hub is the dialect. It must not be changed once a transport has it.
type Hub struct {
	// SessionExpiry is how long the hub keeps the session of a device that is away, in whole
	// seconds up to 8 h. 0: 1 h. Options.Protocol, if set, has its own.
	SessionExpiry time.Duration
	// MaxSize is the largest message in bytes, as Message.Size counts them. 0: 255,000.
	MaxSize int
	// Random fills p with random bytes that nobody can guess. Nil: crypto/rand; a board needs its own.
	Random func(p []byte) error
}

var _ dialect.Dialect = (*Hub)(nil)

// Protocol is MQTT 5, for packages mqtt and engine.
func (h *Hub) Protocol() engine.Protocol {
	o := &engine.MQTT5Options{SessionExpiry: nextwire.DefaultSessionExpiry}
	if h != nil && h.SessionExpiry != 0 {
		o.SessionExpiry = h.SessionExpiry
	}
	return engine.MQTT5(o)
}

// Lacks says what this kind of hub does not have.
func (h *Hub) Lacks(feature transport.Features) string {
	if feature&(transport.FeatureMessages|transport.FeatureCertificates) != 0 {
		return "not available from an IoT hub with the MQTT v5 profile; they need a classic hub"
	}
	return ""
}

// Session prepares a connection, with a nonce of its own. Its errors are Invalid,
// but Unavailable for random numbers that were there before.
func (h *Hub) Session(c *dialect.Config) (dialect.Session, dialect.Hello, error) {
	if err := h.check(c); err != nil {
		return nil, dialect.Hello{}, err
	}
	id := c.Creds.DeviceID
	s := &session{id: id, telemetry: nextwire.Up(id, nextwire.FeatureTelemetry)}
	hello := dialect.Hello{ClientID: id, MaxSize: h.MaxSize}
	if h.MaxSize == 0 {
		hello.MaxSize = nextwire.MaxTelemetry
	}
	if c.Will != nil {
		p, refused := s.Publication(c.Will)
		if refused != nil {
			return nil, hello, mqttwire.Invalid("options: Will: " + refused.Error())
		}
		hello.Will = p
	}
	if c.Kept == nil { // only checked
		return s, hello, nil
	}
	nonce, err := h.newID()
	if err == nil {
		err = h.random(s.twin.random[:])
	}
	if err != nil {
		failed := mqttwire.Invalid("nexthub: no random numbers for a nonce: " + err.Error() + "; set Hub.Random")
		if *c.Kept != nil { // there were some before
			failed.Kind = transport.Unavailable
		}
		return nil, hello, failed
	}
	s.twin.nonce = nonce
	if *c.Kept == nil {
		*c.Kept = &state{hub: h, methods: methods{newID: h.newID}}
	}
	s.state = (*c.Kept).(*state)
	hello.UserName, hello.Host = nextwire.UserName(s.twin.nonce, c.Agent), s.state.nextHost()
	s.held, s.push = uint64(max(c.DesiredVersion, 0)), c.Want&transport.FeatureDesired != 0
	return s, hello, nil
}

// check returns the error for options and credentials that this kind of hub does not have.
func (h *Hub) check(c *dialect.Config) error {
	creds := c.Creds
	switch {
	case h == nil:
		return mqttwire.Invalid("options: Dialect is a nil *nexthub.Hub; give &nexthub.Hub{}")
	case !c.Properties:
		return mqttwire.Invalid("options: a hub with the MQTT v5 profile speaks MQTT 5 only; leave Protocol nil, and use " +
			"package mqtt or engine")
	case h.SessionExpiry < 0 || h.SessionExpiry%time.Second != 0 || h.SessionExpiry > nextwire.MaxSessionExpiry:
		return mqttwire.Invalid("options: SessionExpiry is " + h.SessionExpiry.String() +
			"; give whole seconds up to 8h0m0s, or 0 for 1h0m0s")
	case h.MaxSize < 0 || h.MaxSize > transport.MaxMessageSize:
		return mqttwire.Invalid("options: MaxSize is " + strconv.Itoa(h.MaxSize) +
			"; give a number of bytes up to 262144, or 0 for 255000")
	case creds.Sign != nil || creds.Token != nil:
		return mqttwire.Invalid("credentials: there is a key or token, and a hub with the MQTT v5 profile takes X.509 " +
			"client certificates only; leave Sign and Token nil, and set Network.Certificate")
	case creds.UserName != "":
		return mqttwire.Invalid("credentials: UserName is set, and an IoT hub makes its own; leave it empty")
	case creds.ModuleID != "":
		return mqttwire.Invalid("credentials: ModuleID is set, and a hub with the MQTT v5 profile has no modules")
	case creds.GatewayHost != "":
		return mqttwire.Invalid("credentials: GatewayHost is set, and a hub with the MQTT v5 profile has no gateways; " +
			"leave it empty")
	case strings.ContainsAny(creds.DeviceID, "+#"):
		return mqttwire.Invalid("credentials: DeviceID " + texts.Quote(creds.DeviceID) +
			" has '+' or '#', which a topic of MQTT cannot have [MQTT-3.3.2-2]; choose another id")
	case c.ModelID != "":
		return mqttwire.Invalid("options: ModelID is set, and a hub with the MQTT v5 profile has no place for it; leave it " +
			"empty")
	}
	return nil
}

func (h *Hub) random(p []byte) error {
	if h.Random == nil {
		return systemRandom(p)
	}
	return callback.Call("Hub.Random", func() error { return h.Random(p) })
}

// newID returns a random id.
func (h *Hub) newID() (nextwire.ID, error) {
	var id nextwire.ID
	err := h.random(id[:])
	return nextwire.NewID(id), err
}

// state is what a Transport keeps from one connection to the next.
type state struct {
	hub *Hub

	mu      sync.Mutex // guards methods, and the twin of the session
	methods methods

	// Owned by the goroutine of Dial, then of Run.
	refusals  int       // of the identity, in a row
	refusedAt time.Time // the latest of them
	server    string    // where the hub has sent the device; empty: the host of the credentials
	tried     bool      // and a connection to it was begun that did not count as connected
	sent      int       // how often it was sent on in a row
}

// session is one connection.
type session struct {
	*state
	id        string
	telemetry string
	topic     filled

	held uint64 // the desired version that the client has
	push bool   // it wants newer ones
	twin twin
	out  []dialect.Publication // what the session publishes by itself
}

var (
	_ dialect.Handshaker = (*session)(nil)
	_ dialect.Active     = (*session)(nil)
	_ dialect.Judge      = (*session)(nil)
)
