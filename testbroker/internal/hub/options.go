package hub

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

const (
	// DefaultHostName is the hub's name if Options.HostName is empty.
	DefaultHostName = "hub.example.test"

	defaultTokenGrace = 5 * time.Minute // for which an expired token is still accepted

	ConnectLimit = 60 * time.Second // from the accepted connection to the CONNECT packet
)

// Options are those of testbroker.Options that concern the hub without its fronts.
type Options struct {
	HostName        string
	Now             func() time.Time
	TokenGrace      time.Duration
	ConnectionGrace time.Duration
	C2D             hubdata.C2DOptions
	Inputs          hubdata.C2DOptions
	Limits          hubdata.LimitOptions
	FaultMessages   fault.MessageMode
	AMQP            hubdata.AMQPOptions
	HTTP            hubdata.HTTPOptions
	Uploads         hubdata.UploadOptions
	Events          hubdata.EventOptions
	Certificates    hubdata.CertificateOptions
	WebSocketFrame  int
	Keep            int
	Seed            uint64
	OnEvent         func(event.Event)
	PlainTopic      func(m hubdata.C2D, id identity.Identity) (string, error) // nil: topics of the service
	MQTTv5          bool                                                      // the profile of the hub
	Gateway         *hubdata.GatewayOptions                                   // nil: none
	Store           hubdata.Store                                             // nil: nothing survives
	Names           []string                                                  // of the certificate, besides HostName
	Authority       *tls.Certificate                                          // nil: the hub makes one
}

func c2dDefaults(o hubdata.C2DOptions) hubdata.C2DOptions {
	return hubdata.C2DOptions{
		Queue:         cmp.Or(max(o.Queue, 0), 50),
		TTL:           cmp.Or(max(o.TTL, 0), time.Hour),
		Lock:          cmp.Or(max(o.Lock, 0), time.Minute),
		MaxDeliveries: cmp.Or(max(o.MaxDeliveries, 0), 10),
		Window:        cmp.Or(max(o.Window, 0), 16),
	}
}

const (
	inputQueue = 100_000
	inputTTL   = 2 * time.Hour
)

// inputDefaults is c2dDefaults for the queues of inputs.
func inputDefaults(o hubdata.C2DOptions) hubdata.C2DOptions {
	o.Queue = cmp.Or(max(o.Queue, 0), inputQueue)
	o.TTL = cmp.Or(max(o.TTL, 0), inputTTL)
	o.MaxDeliveries = cmp.Or(max(o.MaxDeliveries, 0), math.MaxInt)
	return c2dDefaults(o)
}

// mechanisms are all SASL mechanisms, in the order of the service.
var mechanisms = []string{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"}

// checkAMQP returns why the options are invalid.
func checkAMQP(o hubdata.AMQPOptions) error {
	for _, m := range o.Mechanisms {
		if !slices.Contains(mechanisms, m) {
			return fmt.Errorf("testbroker: AMQPOptions.Mechanisms: no such mechanism: %q", m)
		}
	}
	return nil
}

func amqpDefaults(o hubdata.AMQPOptions) hubdata.AMQPOptions {
	if len(o.Mechanisms) == 0 {
		o.Mechanisms = mechanisms
	}
	return hubdata.AMQPOptions{
		MaxFrameSize:   max(cmp.Or(o.MaxFrameSize, 1<<16), 512),
		MaxMessageSize: cmp.Or(o.MaxMessageSize, 1<<20),
		ChannelMax:     cmp.Or(o.ChannelMax, 8191),
		HandleMax:      cmp.Or(o.HandleMax, 255),
		SessionWindow:  cmp.Or(o.SessionWindow, 2048),
		Credit:         cmp.Or(o.Credit, 500),
		IdleTimeout:    max(cmp.Or(o.IdleTimeout, 8*time.Minute), 0),
		MaxTokens:      cmp.Or(max(o.MaxTokens, 0), 2000),

		Mechanisms:         o.Mechanisms,
		OmitNextIncomingID: o.OmitNextIncomingID,
		StrictTypes:        o.StrictTypes,
	}
}

func knownAPIVersions() []string {
	return []string{
		"2016-02-03", "2016-11-14", "2017-06-30", "2018-06-30", "2019-03-30", "2019-10-01", "2020-03-13",
		"2020-05-31-preview",
		"2020-09-30",
		"2021-04-12",
	}
}

func httpDefaults(o hubdata.HTTPOptions) hubdata.HTTPOptions {
	o.HeaderTimeout = cmp.Or(max(o.HeaderTimeout, 0), ConnectLimit)
	o.RequestTimeout = cmp.Or(max(o.RequestTimeout, 0), 2*time.Minute)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 4*time.Minute)
	o.MaxHeader = cmp.Or(max(o.MaxHeader, 0), 64<<10)
	if o.APIVersions == nil {
		o.APIVersions = knownAPIVersions()
	}
	o.APIVersions = slices.Clone(o.APIVersions)
	return o
}
