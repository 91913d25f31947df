package testbroker

import (
	"crypto/tls"
	"errors"
	"math"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqttfront"
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
	// MQTTv5, unless nil, gives the hub the MQTT v5 connection profile: see [MQTTv5Options]. It
	// excludes Broker and Gateway.
	MQTTv5 *MQTTv5Options
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

// The settings of the parts of a hub. Package hubdata documents their fields.
type (
	// C2DOptions are the settings of the queues of C2D messages, and of those of inputs.
	C2DOptions = hubdata.C2DOptions
	// LimitOptions are limits of connects and messages a second.
	LimitOptions = hubdata.LimitOptions
	// AMQPOptions are the settings of AMQP connections.
	AMQPOptions = hubdata.AMQPOptions
	// HTTPOptions are the settings of HTTP connections.
	HTTPOptions = hubdata.HTTPOptions
	// BrokerOptions make a hub a plain MQTT broker.
	BrokerOptions = hubdata.BrokerOptions
	// MQTTv5Options give a hub the MQTT v5 connection profile.
	MQTTv5Options = hubdata.MQTTv5Options
	// GatewayOptions put an edge gateway in front of a hub.
	GatewayOptions = hubdata.GatewayOptions
	// UploadOptions are the settings of file uploads.
	UploadOptions = hubdata.UploadOptions
	// EventOptions are the settings of the endpoint compatible with Event Hubs.
	EventOptions = hubdata.EventOptions
	// CertificateOptions are the settings of the certificates that a hub issues to its devices.
	CertificateOptions = hubdata.CertificateOptions
	// Store keeps the state of a hub, or of a provisioning service, between runs.
	Store = hubdata.Store
)

// forHub returns the settings as the hub and the front of MQTT take them.
func (o *Options) forHub() (all *hub.Options, mqtt mqttfront.Dialect, err error) {
	if o == nil {
		return nil, mqtt, nil
	}
	if o.Gateway != nil && o.Broker != nil || o.MQTTv5 != nil && (o.Gateway != nil || o.Broker != nil) {
		return nil, mqtt, errors.New("testbroker: Options.Gateway, Options.Broker and Options.MQTTv5 exclude each other; " +
			"set one")
	}
	all = &hub.Options{
		HostName: o.HostName, Now: o.Now, TokenGrace: o.TokenGrace, ConnectionGrace: o.ConnectionGrace,
		C2D: o.C2D, Inputs: o.Inputs, Limits: o.Limits, FaultMessages: o.FaultMessages, AMQP: o.AMQP, HTTP: o.HTTP,
		Gateway: o.Gateway, Uploads: o.Uploads, Events: o.Events, Certificates: o.Certificates,
		WebSocketFrame: o.WebSocketFrame, Keep: o.Keep, Seed: o.Seed, OnEvent: o.OnEvent, Store: o.Store,
		Names: o.Names, Authority: o.Authority, MQTTv5: o.MQTTv5 != nil,
	}
	switch {
	case o.Broker != nil:
		if mqtt.Broker, err = mqttfront.Options(*o.Broker).WithDefaults(); err != nil {
			return nil, mqtt, err
		}
		all.C2D, all.PlainTopic = mqttfront.Queues(all.C2D), mqtt.Broker.Topic
	case o.MQTTv5 != nil:
		mqtt.Profile, err = mqttfront.ProfileOf(*o.MQTTv5)
		all.C2D.Window = math.MaxUint16 // the receive maximum of the client alone limits messages of the hub
	}
	return all, mqtt, err
}
