package testbroker

import (
	"crypto/tls"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/brokerfront"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// Options are the settings of a hub. The zero value of each field means its default.
type Options struct {
	// HostName is the hub's name in user names, tokens and its certificate. Default:
	// [DefaultHostName]. As in the service, devices may also use the name with "device" after its
	// first label: HUB.device.example.test for HUB.example.test.
	HostName string
	// Now is the hub's clock. The hub uses it to check tokens, to stamp messages and events, and to
	// date its certificate. It is called from any goroutine. Default: [time.Now]. Delays and durations
	// use the real clock, or the synctest bubble's.
	Now func() time.Time
	// TokenGrace is how long an expired token is still accepted. Default: 5 minutes;
	// negative: no grace.
	TokenGrace time.Duration
	// ConnectionGrace is the time from the expiry of its token to the end of a connection. Default:
	// TokenGrace; negative: no grace.
	ConnectionGrace time.Duration
	// C2D holds the settings of the C2D queues.
	C2D C2DOptions
	// Inputs holds the settings of the queues of modules' inputs. All inputs of a module share one
	// queue. Defaults other than those of C2D: a queue of 100,000 messages, a TTL of 2 hours, no limit
	// of deliveries.
	Inputs C2DOptions
	// Limits holds the limits of connects and telemetry a second, over MQTT. Default: none.
	Limits LimitOptions
	// FaultMessages says how the hub treats messages with which a device requests a fault. Default:
	// the fault happens.
	FaultMessages fault.MessageMode
	// AMQP holds the settings of AMQP connections.
	AMQP AMQPOptions
	// HTTP holds the settings of HTTP connections.
	HTTP HTTPOptions
	// Broker, unless nil, makes the hub a plain MQTT broker: see [BrokerOptions]. Its other protocols
	// stay those of the service.
	Broker *BrokerOptions
	// Gateway, unless nil, puts an edge gateway in front of the hub: see [GatewayOptions]. It excludes
	// Broker.
	Gateway *GatewayOptions
	// Uploads holds the settings of file uploads.
	Uploads UploadOptions
	// Events holds the settings of the endpoint compatible with Event Hubs, on all AMQP ports.
	Events EventOptions
	// Certificates holds the settings of the certificates that the hub issues.
	Certificates CertificateOptions
	// WebSocketFrame, unless zero, is the maximum payload of a frame that the hub sends, in bytes,
	// regardless of packet boundaries. Default: each write is one frame.
	WebSocketFrame int
	// Keep, if positive, is how many entries of each log the hub keeps, the newest, so that it can run
	// for any time. The logs are: messages, conflicts, method calls, their answers, requested faults,
	// uploads with their files, ended jobs with their states for each device, and for each device or
	// module its C2D messages and its twin requests. The hub forgets the oldest entries. It also
	// forgets the C2D messages of a removed device after that many further removals. Waits, counts and
	// sequence numbers include forgotten entries. Operations in progress continue, except that a
	// forgotten upload is over. The memory of up to Keep forgotten entries is freed later. The
	// partitions of Events keep at most Keep events together. A forgotten message takes its event
	// along, and those before it in the same partition. Telemetry in Events is a reference of 32 bytes
	// to the message, at most 64 with what is freed later; events of other sources have a body of
	// their own. Default: all are kept until [Hub.Reset].
	Keep int
	// Seed, unless zero, makes keys, the certificate authority and the draws of faults repeatable:
	// clients that trust a hub trust the next one with the same seed. Anyone who knows the seed can
	// derive the keys.
	Seed uint64
	// OnEvent is called with every event: see [event.Kind]. Goroutines of connections and callers of
	// the hub call it concurrently. It must not block; it may call methods that do not block. Default:
	// none.
	OnEvent func(event.Event)
	// Names are further names and IP addresses for which the hub's certificate is valid, besides
	// HostName, localhost and the addresses of loopback. Default: none.
	Names []string
	// Authority, unless nil, signs the hub's certificate: a certificate of an authority with its key,
	// of RSA, ECDSA or Ed25519, that is valid at present. [Hub.RotateCertificate] replaces it by one
	// that the hub makes.
	// Default: the hub makes one, from Seed if there is one, or takes that of Store.
	Authority *tls.Certificate
	// Store, unless nil, keeps the state of the hub between runs: see [Store]. Default: none.
	Store Store
}

// C2DOptions are the settings of the C2D queues. The zero value of each field means its default.
type C2DOptions struct {
	// Queue is how many C2D messages may wait for one device, including unacknowledged ones. Default:
	// 50.
	Queue int
	// TTL is the time from [Hub.SendC2D] to the expiry of a C2D message without an Expiry. Default: 1
	// hour.
	TTL time.Duration
	// Lock is how long a delivered C2D message waits for its PUBACK or outcome, or over HTTP for its
	// DELETE, before it is delivered again. Default: 60 s.
	Lock time.Duration
	// MaxDeliveries is how often a C2D message is delivered before it is dead-lettered. Default: 10.
	MaxDeliveries int
	// Window is how many unacknowledged C2D messages a client over MQTT may have. Over AMQP the
	// client's credit sets the limit. Default: 16.
	Window int
}

// LimitOptions are the limits of the service, which it publishes for each tier and unit: S1 takes
// 100 connects and 100 messages a second, or 12 for each unit if that is more; S2 takes 120 and S3
// 6,000 for each unit. They hold for all devices together, over MQTT 3.1.1 and the service's
// topics. Requests beyond a limit are taken at once for a burst, then wait in a queue, and are
// refused when the queue is full: a connect by CONNACK 3, a message by the end of its connection.
// A message that waits is stored, and its PUBACK is late. For other protocols see
// [fault.Throttle].
type LimitOptions struct {
	// Connects and Messages are the limits a second. 0: none.
	Connects, Messages float64
	// Burst is how far ahead of its limits the hub takes requests at once, and Queue is how long a
	// request waits at most. Default: 10 s each; negative: none.
	Burst, Queue time.Duration
}

// AMQPOptions are the settings of AMQP connections. The zero value of each field means its default.
type AMQPOptions struct {
	// MaxFrameSize is the largest frame that the hub accepts, at least 512 bytes. Default: 65536.
	MaxFrameSize uint32
	// MaxMessageSize is the largest encoded message or batch, in bytes, that a telemetry link accepts.
	// The hub detaches the link for a larger one. The size limit of one message, [hubdata.MaxMessage],
	// is smaller. Default: 1 MiB.
	MaxMessageSize uint64
	// ChannelMax is the highest channel number of a connection, HandleMax the highest link handle of a
	// session. Defaults: 8191 and 255.
	ChannelMax uint16
	HandleMax  uint32
	// SessionWindow is how many transfer frames a client may send ahead of the hub in one session.
	// Default: 2048.
	SessionWindow uint32
	// Credit is the number of messages for which the hub gives a link credit. It renews the credit
	// when half is used. Default: 500.
	Credit uint32
	// IdleTimeout is how long a client may be silent before the hub closes its connection. The hub
	// announces half of it to the client. Default: 8 minutes; negative: no limit.
	IdleTimeout time.Duration
	// MaxTokens is how many tokens one connection may hold. Default: 2000.
	MaxTokens int
	// Mechanisms are the SASL mechanisms that the hub offers, of "MSSBCBS", "PLAIN", "ANONYMOUS" and
	// "EXTERNAL". It refuses the others. Older edge gateways do not have MSSBCBS. Default: all.
	Mechanisms []string
	// OmitNextIncomingID omits next-incoming-id from each flow. The standard requires it once a
	// session has begun, but some hubs omit it.
	OmitNextIncomingID bool
	// StrictTypes refuses telemetry with application properties that are no strings, and with a body
	// that is no data section. Otherwise the log has simple values as text, such as "21.5" and "true",
	// leaves out nulls, and has the bytes of a body that is one text or one binary value. The service
	// documents properties as strings; the Azure SDK for Node.js sends what its caller gives, and no
	// source says that the service refuses that.
	StrictTypes bool
}

// HTTPOptions are the settings of HTTP connections. The zero value of each field means its default.
type HTTPOptions struct {
	// HeaderTimeout is how long a client may take to send the head of a request. Default: 1 minute.
	HeaderTimeout time.Duration
	// RequestTimeout is how long a client may take to send a request with its body. Default: 2
	// minutes.
	RequestTimeout time.Duration
	// IdleTimeout is how long a connection may be without a request. Default: 4 minutes; negative: no
	// limit.
	IdleTimeout time.Duration
	// MaxHeader is the size limit of the head of a request in bytes. Default: 64 KB.
	MaxHeader int
	// NoHTTP2 disables HTTP/2: TLS clients get HTTP/1.1.
	NoHTTP2 bool
	// APIVersions are the accepted values of the query parameter api-version. Default:
	// those that known devices request.
	APIVersions []string
	// StrictValues refuses messages that have property values with characters other than those allowed
	// in names: ASCII letters and digits and ! # $ % & ' * + - . ^ _ ` | ~. The service's documents
	// say that it accepts no others.
	StrictValues bool
	// TextErrors gives error bodies the older form, "ErrorCode:DeviceNotFound;..." instead of JSON in
	// JSON.
	TextErrors bool
	// RetryAfterDate writes Retry-After as a date instead of a number of seconds.
	RetryAfterDate bool
}

// EventOptions are the settings of the endpoint compatible with Event Hubs. Back ends read there
// with a policy that has [hubdata.ServiceConnect]: see [Hub.EventsConnectionString]. The zero value
// of each field means its default.
type EventOptions struct {
	// EntityPath is the name of the event hub. Default: the first label of the host name.
	EntityPath string
	// Partitions is their number, up to 32. All events of a device are in one partition. Default: 4.
	Partitions int
	// ConsumerGroups are the groups besides $Default, up to 20. Names have no letter case.
	ConsumerGroups []string
	// Sources are the sources of events besides telemetry. Default: none, as in the service without
	// message routes.
	Sources []hubdata.EventSource
}

// UploadOptions are the settings of file uploads. The zero value of each field means its default.
type UploadOptions struct {
	// Host is the store's host name for devices, with an optional port. The hub is also the store, on
	// all its HTTP ports. Default: the address at which the device reached the hub; for in-memory
	// connections "store." and the hub's name, which the hub's certificate covers too.
	Host string
	// Life is the time limit of an upload. Default: 1 hour, as in the service, which allows 1 minute
	// to 24 hours.
	Life time.Duration
	// NoStore makes a hub that has no store configured.
	NoStore bool
	// Digest makes the store keep size and hash of each block instead of its bytes, for files larger
	// than memory: see [hubdata.Blob.Matches]. Such files cannot be downloaded. Without it, all files
	// and staged blocks have at most 512 MiB together, and the store refuses more with status 413.
	Digest bool
	// MaxBlocks is how many blocks a file may have. Default: 50,000, as in the service.
	MaxBlocks int
}

// forHub returns the settings as the hub and the front of a plain broker take them. The conversions
// fail to compile when the types differ. broker is nil unless the hub is a plain broker.
func (o *Options) forHub() (all *hub.Options, broker *brokerfront.Options, err error) {
	if o == nil {
		return nil, nil, nil
	}
	all = &hub.Options{
		HostName: o.HostName, Now: o.Now, TokenGrace: o.TokenGrace, ConnectionGrace: o.ConnectionGrace,
		C2D: hub.C2DOptions(o.C2D), Inputs: hub.C2DOptions(o.Inputs), Limits: hub.LimitOptions(o.Limits),
		FaultMessages: o.FaultMessages,
		AMQP:          hub.AMQPOptions(o.AMQP),
		HTTP:          hub.HTTPOptions(o.HTTP), Uploads: hub.UploadOptions(o.Uploads), Events: hub.EventOptions(o.Events),
		Certificates: hub.CertificateOptions(o.Certificates), WebSocketFrame: o.WebSocketFrame,
		Keep: o.Keep, Seed: o.Seed, OnEvent: o.OnEvent, Store: o.Store, Names: o.Names, Authority: o.Authority,
	}
	if o.Gateway != nil {
		gateway := hub.GatewayOptions(*o.Gateway)
		all.Gateway = &gateway
	}
	if o.Gateway != nil && o.Broker != nil {
		return nil, nil, errors.New("testbroker: Options.Gateway and Options.Broker exclude each other; set one")
	}
	if o.Broker != nil {
		if broker, err = brokerfront.Options(*o.Broker).WithDefaults(); err != nil {
			return nil, nil, err
		}
		all.C2D, all.PlainTopic = brokerfront.Queues(all.C2D), broker.Topic
	}
	return all, broker, nil
}
