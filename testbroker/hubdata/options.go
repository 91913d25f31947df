package hubdata

import "time"

// C2DOptions are the settings of the C2D queues. The zero value of each field means its default.
type C2DOptions struct {
	// Queue is how many C2D messages may wait for one device, including unacknowledged ones.
	// Default: 50.
	Queue int
	// TTL is the time from testbroker.Hub.SendC2D to the expiry of a C2D message without an Expiry.
	// Default: 1 hour.
	TTL time.Duration
	// Lock is how long a delivered C2D message waits for its PUBACK or outcome, or over HTTP for
	// its DELETE, before it is delivered again. Default: 60 s.
	Lock time.Duration
	// MaxDeliveries is how often a C2D message is delivered before it is dead-lettered. Default:
	// 10.
	MaxDeliveries int
	// Window is how many unacknowledged C2D messages a client over MQTT may have, at most 32,767:
	// there are no more packet ids. Over AMQP the client's credit sets the limit. Default: 16.
	Window int
}

// LimitOptions are the limits of the service, which it publishes for each tier and unit: S1 takes
// 100 connects and 100 messages a second, or 12 for each unit if that is more; S2 takes 120 and S3
// 6,000 for each unit. They hold for all devices together, over MQTT 3.1.1 and the service's
// topics. Requests beyond a limit are taken at once for a burst, then wait in a queue, and are
// refused when the queue is full: a connect by CONNACK 3, a message by the end of its connection. A
// message that waits is stored, and its PUBACK is late. For other protocols see fault.Throttle.
type LimitOptions struct {
	// Connects and Messages are the limits a second. 0: none.
	Connects, Messages float64
	// Burst is how far ahead of its limits the hub takes requests at once, and Queue is how long a
	// request waits at most. Default: 10 s each; negative: none.
	Burst, Queue time.Duration
}

// UploadOptions are the settings of file uploads. The zero value of each field means its default.
type UploadOptions struct {
	// Host is the store's host name for devices, with an optional port. The hub is also the store,
	// on all its HTTP ports. Default: the address at which the device reached the hub; for
	// in-memory connections "store." and the hub's name, which the hub's certificate covers too.
	Host string
	// Life is the time limit of an upload. Default: 1 hour, as in the service, which allows 1
	// minute to 24 hours.
	Life time.Duration
	// NoStore makes a hub that has no store configured.
	NoStore bool
	// Digest makes the store keep size and hash of each block instead of its bytes, for files
	// larger than memory: see [Blob.Matches]. Such files cannot be downloaded. Without it, all
	// files and staged blocks have at most 512 MiB together, and the store refuses more with status
	// 413.
	Digest bool
	// MaxBlocks is how many blocks a file may have. Default: 50,000, as in the service.
	MaxBlocks int
}

// EventOptions are the settings of the endpoint compatible with Event Hubs. Back ends read there
// with a policy that has [RightServiceConnect]: see testbroker.Hub.EventsConnectionString. The zero
// value of each field means its default.
type EventOptions struct {
	// EntityPath is the name of the event hub. Default: the first label of the host name.
	EntityPath string
	// Partitions is their number, up to 32. All events of a device are in one partition. Default:
	// 4.
	Partitions int
	// ConsumerGroups are the groups besides $Default, up to 20. Names have no letter case.
	ConsumerGroups []string
	// Sources are the sources of events besides telemetry. Default: none, as in the service without
	// message routes.
	Sources []EventSource
}

// CertificateOptions are the settings of the certificates that a hub issues to its devices. The
// zero value of each field means its default.
type CertificateOptions struct {
	// Life is how long a certificate is valid. Default: 30 days; negative: the hub issues none,
	// like one without a linked certificate authority.
	Life time.Duration
	// Delay is the time from the answer that a request is accepted to the one with the certificate.
	// Default: none.
	Delay time.Duration
}

// AMQPOptions are the settings of AMQP connections. The zero value of each field means its default.
type AMQPOptions struct {
	// MaxFrameSize is the largest frame that the hub accepts, at least 512 bytes. Default: 65536.
	MaxFrameSize uint32
	// MaxMessageSize is the largest encoded message or batch, in bytes, that a telemetry link
	// accepts. The hub detaches the link for a larger one. The size limit of one message,
	// [MaxMessage], is smaller. Default: 1 MiB.
	MaxMessageSize uint64
	// ChannelMax is the highest channel number of a connection, HandleMax the highest link handle
	// of a session. Defaults: 8191 and 255.
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
	// Mechanisms are the SASL mechanisms that the hub offers, of "MSSBCBS", "PLAIN", "ANONYMOUS"
	// and "EXTERNAL". It refuses the others. Older edge gateways do not have MSSBCBS. Default: all.
	Mechanisms []string
	// OmitNextIncomingID omits next-incoming-id from each flow. The standard requires it once a
	// session has begun, but some hubs omit it.
	OmitNextIncomingID bool
	// StrictTypes refuses telemetry with application properties that are no strings, and with a
	// body that is no data section. Otherwise the log has simple values as text, such as "21.5" and
	// "true", leaves out nulls, and has the bytes of a body that is one text or one binary value.
	// The service documents properties as strings; the Azure SDK for Node.js sends what its caller
	// gives, and no source says that the service refuses that.
	StrictTypes bool
}

// HTTPOptions are the settings of HTTP connections. The zero value of each field means its default.
type HTTPOptions struct {
	// HeaderTimeout is how long a client may take to send the head of a request. Default: 1 minute.
	HeaderTimeout time.Duration
	// RequestTimeout is how long a client may take to send a request with its body. Default: 2
	// minutes.
	RequestTimeout time.Duration
	// IdleTimeout is how long a connection may be without a request. Default: 4 minutes; negative:
	// no limit.
	IdleTimeout time.Duration
	// MaxHeader is the size limit of the head of a request in bytes. Default: 64 KB.
	MaxHeader int
	// NoHTTP2 disables HTTP/2: TLS clients get HTTP/1.1.
	NoHTTP2 bool
	// APIVersions are the accepted values of the query parameter api-version. Default: those that
	// known devices request.
	APIVersions []string
	// StrictValues refuses messages that have property values with characters other than those
	// allowed in names: ASCII letters and digits and ! # $ % & ' * + - . ^ _ ` | ~. The service's
	// documents say that it accepts no others.
	StrictValues bool
	// TextErrors gives error bodies the older form, "ErrorCode:DeviceNotFound;..." instead of JSON
	// in JSON.
	TextErrors bool
	// RetryAfterDate writes Retry-After as a date instead of a number of seconds.
	RetryAfterDate bool
}
