// Package hub is an IoT hub without a protocol: identities, connections, queues, twins and calls.
// What has an owner and a lock of its own is a room beside it, such as telemetry and faults.
package hub

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
	"github.com/hubline-iot/hubline/testbroker/internal/notices"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
)

var (
	// ErrClosed is returned by calls on a closed hub.
	ErrClosed = keep.ErrClosed

	// ErrDropped is the cause of a connection's end when [Hub.Drop] ended it.
	ErrDropped = errors.New("dropped by the test")
	// ErrReset is the cause of a connection's end when [Hub.Reset] ended it.
	ErrReset = errors.New("cut by a reset of the hub")
	// ErrReplaced is the cause of a connection's end when a newer one of the same identity replaced
	// it.
	ErrReplaced = errors.New("replaced by a newer connection of the same identity")
	// ErrDisabled is the cause of refusing a disabled device, and of ending its connection.
	ErrDisabled = errors.New("device is disabled")
	// ErrRemoved is the cause of a connection's end when [Hub.RemoveDevice] removed the device.
	ErrRemoved = errors.New("device was removed")
	// ErrTokenExpired is the cause of a connection's end when its token expired.
	ErrTokenExpired = errors.New("token of the connection expired")
	// ErrDisconnect is the cause of a connection's end when the client sent DISCONNECT.
	ErrDisconnect = errors.New("client disconnected")
)

// Hub is an in-memory IoT hub. Make it with [New].
type Hub struct {
	Host             string
	Now              func() time.Time
	grace            time.Duration // after the expiry of tokens
	ConnectionGrace  time.Duration // of connections after their token's expiry
	Seed             uint64
	Keep             int
	C2D              hubdata.C2DOptions
	Inputs           hubdata.C2DOptions
	PlainTopic       func(m hubdata.C2D, id identity.Identity) (string, error) // of C2D messages at a plain broker
	MQTTv5           bool                                                      // the profile of the hub
	Gateway          *Gateway                                                  // nil = none
	AMQP             hubdata.AMQPOptions
	HTTP             hubdata.HTTPOptions
	Certificates     hubdata.CertificateOptions
	FaultMessageMode fault.MessageMode
	WebSocketFrame   int
	onEvent          func(event.Event)

	Fronts  map[hubdata.Protocol]Front
	Done    chan struct{} // closed when Close begins
	stopped chan struct{} // closed when Close has finished
	// Every goroutine of the hub. It grows only under mu while closed is false, or from one of its
	// goroutines.
	Wg        sync.WaitGroup
	running   sync.WaitGroup // the goroutines of connections; grows only under mu while no Reset runs
	delayed   sync.WaitGroup // the goroutines of Later; the same
	Changed   keep.Notifier
	Telemetry telemetry.Log
	Faults    faults.Faults
	Limits    faults.Limits
	Requests  faults.Requests
	Authority identity.Authority
	Files     files.Files
	calls     methodCalls
	issuer    issuer
	notices   [notices.Kinds]notices.Queue
	Records   keep.Saver

	plug Plug

	tracked  atomic.Uint64 // errors with a tracking id
	connects atomic.Uint64 // notices of connections

	twinWatch atomic.Pointer[func(hubdata.Twin)] // see WatchTwins

	mu          sync.Mutex // guards the fields below, never held while blocking
	closed      bool
	unsaved     bool          // the store has failed: no connections any more
	resetting   chan struct{} // closed when the running Reset has finished; nil = none runs
	cleared     chan struct{} // closed by the next Reset
	registry    map[identity.Identity]*Registration
	modules     map[string]map[string]struct{} // names of the registered modules of each device that has some
	entries     int                            // registrations so far
	removed     removals
	policies    map[string]policy
	generations map[string]int // how many key pairs each owner received
	listeners   []net.Listener
	conns       map[*Conn]struct{}               // accepted connections that have not ended
	candidates  map[string]map[*Conn]struct{}    // by device id: those of conns that may act for it, or for its modules
	accepted    uint64                           // connections so far
	queues      map[string]map[queueName]*Queue  // by device id
	cas         *x509.CertPool                   // trusted authorities of devices
	twinOf      map[identity.Identity]*TwinState // twins in use so far
}

// New makes a hub without devices, listeners and fronts. Nil options mean all defaults.
func New(o *Options) (*Hub, error) {
	if o == nil {
		o = &Options{}
	}
	h := &Hub{
		PlainTopic:       o.PlainTopic,
		MQTTv5:           o.MQTTv5,
		Host:             cmp.Or(o.HostName, DefaultHostName),
		Now:              o.Now,
		grace:            max(cmp.Or(o.TokenGrace, defaultTokenGrace), 0),
		ConnectionGrace:  max(cmp.Or(o.ConnectionGrace, o.TokenGrace, defaultTokenGrace), 0),
		Seed:             o.Seed,
		Keep:             max(o.Keep, 0),
		C2D:              c2dDefaults(o.C2D),
		Inputs:           inputDefaults(o.Inputs),
		AMQP:             amqpDefaults(o.AMQP),
		HTTP:             httpDefaults(o.HTTP),
		Certificates:     o.Certificates,
		FaultMessageMode: o.FaultMessages,
		WebSocketFrame:   o.WebSocketFrame,
		onEvent:          o.OnEvent,
		plug:             noPlug{},
		Done:             make(chan struct{}),
		stopped:          make(chan struct{}),
		cleared:          make(chan struct{}),
		registry:         make(map[identity.Identity]*Registration),
		policies:         make(map[string]policy),
		generations:      make(map[string]int),
		conns:            make(map[*Conn]struct{}),
		modules:          make(map[string]map[string]struct{}),
		candidates:       make(map[string]map[*Conn]struct{}),
		queues:           make(map[string]map[queueName]*Queue),
		removed:          removals{times: make(map[identity.Identity]int)},
		cas:              x509.NewCertPool(),
		twinOf:           make(map[identity.Identity]*TwinState),
	}
	h.calls.named, h.calls.open = make(map[callName]*methodCall), make(map[*methodCall]struct{})
	if err := identity.CheckHost(h.Host); err != nil {
		return nil, fmt.Errorf("testbroker: Options.HostName: %w", err)
	}
	if h.Now == nil {
		h.Now = time.Now
	}
	if err := h.Limits.Init(&o.Limits); err != nil {
		return nil, err
	}
	if err := checkAMQP(o.AMQP); err != nil {
		return nil, err
	}
	var err error
	if h.Gateway, err = newGateway(o.Gateway); err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(h.Host, ".")
	if err = h.Telemetry.Init(o.Events, name, h.Keep, h.Now); err != nil {
		return nil, err
	}
	h.calls.log.Keep, h.calls.answers.Keep = h.Keep, h.Keep
	h.removed.log.Keep = h.Keep
	h.Requests.Init(h.Keep)
	h.issuer.log.Keep, h.issuer.of = h.Keep, make(map[identity.Identity]*issuing)
	if h.Certificates.Life == 0 {
		h.Certificates.Life = defaultCertificateLife
	}
	h.Faults.Init(o.Seed, func(e event.Event) { h.Event(e, nil) }, h.Until)
	h.Records.Init(o.Store, h.storeFailed)
	h.addRegistryTables()
	h.addTwinTable()
	h.addQueueTables()
	for kind := range notices.Kinds {
		h.notices[kind].Init(kind, noticeHost{h}, &h.Records)
	}
	h.Files.Init(o.Uploads, h.Keep, h.Now, &h.Records, func(e event.Event) { h.Event(e, nil) })
	h.Telemetry.Keep(&h.Records, h.originOf)
	names := identity.HostNames{Host: h.Host, Front: h.FrontName(), More: o.Names}
	if err := h.Authority.Init(names, h.Seed, o.Authority, h.Now, &h.Records); err != nil {
		return nil, err
	}

	return h, nil
}

// SetFronts sets the front of each protocol. It is called before the first connection.
func (h *Hub) SetFronts(all map[hubdata.Protocol]Front) { h.Fronts = all }
