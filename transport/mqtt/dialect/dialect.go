// Package dialect says how a device speaks MQTT with a service: what CONNECT contains, which topics
// there are, and what travels in them. Packages mqtt, engine and paho take a Dialect
// in their options.
//
//	mqtt.New(nil)                                        // an IoT hub
//	mqtt.New(&mqtt.Options{Dialect: &dialect.Topics{     // any other broker
//		Telemetry: "site/{device}/up",
//		Commands:  []string{"site/{device}/down/#"},
//	}})
//
// Hub, HubTwinAndMethods and HubMessages are IoT Hub's dialect, in three sizes. Topics is that of
// all other brokers. Package nexthub has that of hubs with the MQTT v5 profile. Most programs need
// nothing else of this package. The rest is for those that describe a service of their own, as
// implementations of Dialect and Session.
package dialect

import (
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
)

// A Dialect is how devices speak MQTT with one kind of service. It is used by several goroutines,
// and by all transports that have it in their options.
type Dialect interface {
	// Session prepares a session, in each Dial, before anything is connected. An error ends the Dial.
	// An *transport.Error keeps its Kind; any other error is Invalid.
	Session(c *Config) (Session, Hello, error)
}

// Config is what a Dialect learns about a session. It is valid until Dialect.Session returns, but
// for what its fields point to.
type Config struct {
	// Creds have been validated, and no token was made of them yet.
	Creds *transport.Credentials
	// Agent is the name of engine and product, and ModelID the Plug and Play model, empty for none.
	Agent, ModelID string
	// Will is the message that the service sends when the session is lost. Nil: none.
	Will *transport.Message
	// Certificates: the client requests certificates (transport.Config.Certificates).
	Certificates bool
	// Properties: packets have a place for properties, as in MQTT 5.
	Properties bool
	// Want and DesiredVersion are those of transport.Config.
	Want           transport.Features
	DesiredVersion int64
	// Kept is a place for what a dialect keeps from one session of the transport to the next. Nil when
	// the session is only checked.
	Kept *any
}

// Hello is what CONNECT says, in addition to the token, which is the password.
type Hello struct {
	ClientID string
	// UserName may be empty: then CONNECT has none.
	UserName string
	// Will is for Config.Will. Its Msg is nil if there is none.
	Will Publication
	// MaxSize is the largest message that the service takes, as transport.Message.Size counts it.
	MaxSize int
	// Host is the host to connect to and to verify instead of the credentials'. Empty, and over MQTT
	// 3.1.1: those.
	Host string
}

// A Session is the dialect of one connection. An engine calls Publication, AppendSuffix and
// AppendRequest on one goroutine at a time, and Take and Missed one at a time, on the goroutine
// that reads or another one. Filters may be called concurrently with any of them. None of them
// blocks, and none of them keeps a slice or a message.
type Session interface {
	// Publication says how m is published. An error refuses m alone; its Scope is Operation. The
	// result is valid until the next call.
	Publication(m *transport.Message) (Publication, *transport.Error)
	// AppendSuffix appends as many bytes as a Publication of m, or of a message in its place, says.
	AppendSuffix(dst []byte, m *transport.Message) []byte
	// Filters returns what to subscribe to for all features in want, MaxFilters at most. None: the
	// request is refused as Unsupported. The result is not changed.
	Filters(want transport.Features) []Filter
	// AppendRequest appends the topic of a request: OpTwinGet, OpTwinPatch, OpRespond or OpIssue. It
	// returns the QoS for it, 0 or 1, and ok false for a request that the service does not have.
	AppendRequest(dst []byte, r *transport.Request) (topic []byte, qos byte, ok bool)
	// Take passes an incoming message to sink, as a delivery or a reply. d is for the delivery: it has
	// the message with its body, Retain, Redelivered, and a Ref to settle it with unless QoS is 0. It
	// sets Kind for what it passes on, and Ref to nil for what it has handled itself. Messages on
	// topics without a subscription are ignored, with Kind 0: the engine has them acknowledged, if QoS
	// is not 0, and reported to the user.
	Take(sink transport.Sink, topic []byte, d *transport.Delivery)
	// Missed is Take for an incoming message of size bytes, where the engine takes limit bytes at most
	// and has skipped the body. Without a call of sink it is not acknowledged.
	Missed(sink transport.Sink, topic []byte, d *transport.Delivery, size, limit int)
}

// MaxFilters is the most filters in one SUBSCRIBE.
const MaxFilters = 32

// Filter is a topic filter, Topic, and the QoS to request for it, 0 or 1.
type Filter = mqttwire.Filter

// Publication is how a message is published: on the topic that Topic begins with, with QoS 1 unless
// AtMostOnce is set.
type Publication struct {
	// Msg is the message, or the one that is sent in its place.
	Msg *transport.Message
	// Topic is the topic or its beginning, and Suffix the number of bytes that Session.AppendSuffix
	// appends to it.
	Topic              string
	Suffix             int
	Retain, AtMostOnce bool
	// Names are the user properties for the fields of Msg, over MQTT 5. Nil: those of most brokers.
	Names *Names
}

// A Handshaker is a Session with something to do before the connection counts as connected.
type Handshaker interface {
	// Handshake returns what to do, within each Dial, after CONNACK: a *Handshake. Nil: nothing.
	Handshake() Plan
}

// A Plan is a *Handshake. It is an interface so that a linker drops handshakes that a board's
// program does not have.
type Plan interface {
	// Perform is for engines.
	Perform(e Engine) error
}

// A Handshake is a subscription, then a message, then answers; each of them may be missing. The
// context of the Dial limits its time. A refused subscription ends the Dial with the Kind of its
// code.
type Handshake struct {
	// Filters are subscribed to.
	Filters []Filter
	// Message is published when they are granted, with QoS 1 unless AtMostOnce is set, here or in the
	// engine's options. Msg is nil if there is none.
	Message Publication
	// Limit is the time for each step. 0: what the context of the Dial leaves.
	Limit time.Duration
	// Answer gets each message that comes after Message was written and before Answer says done. With
	// mine the engine acknowledges the message. Without, the message waits for the session, as those
	// that came before, and is delivered as any other. An error ends
	// the Dial. An *transport.Error keeps its Kind; any other error is Unavailable. Nil: the handshake
	// is done when Message is acknowledged, or with QoS 0 when it is written.
	Answer func(topic []byte, m *transport.Message) (mine, done bool, err error)
}
