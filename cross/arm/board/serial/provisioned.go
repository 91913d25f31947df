//go:build tinygo && provisioning

package main

import (
	"context"

	"github.com/hubline-iot/hubline/cross/arm/board"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsengine"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// scope is the ID scope, set by the linker.
var scope string

// home is the hub for which the board asks the provisioning service: with its first connection, and
// again when the hub refuses it. A board with writable flash keeps the assignment there.
type home struct {
	modem    *board.Modem
	client   *provisioning.Client
	hub      transport.Transport
	creds    *transport.Credentials // nil: unknown
	progress func()                 // of the present Dial
}

func newHome(modem *board.Modem, sign func(context.Context, []byte) ([]byte, error)) *home {
	h := &home{modem: modem}
	id := provisioning.Identity{Endpoint: host, IDScope: scope, RegistrationID: deviceID, Sign: sign, Now: modem.Now}
	var err error
	h.client, err = provisioning.New(&id, dpsengine.New(h.dial, nil), &provisioning.Options{OnEvent: h.report})
	if err != nil {
		println("FATAL", err.Error())
		for {
			line.Pause() // the watchdog resets the board
		}
	}
	return h
}

// wrap makes a transport around hub.
func (h *home) wrap(hub transport.Transport) transport.Transport {
	h.hub = hub
	return dialer(h.connect)
}

// dialer is a transport. A pointer to home would be one too, but the linker would describe all its
// fields.
type dialer func(ctx context.Context, cfg *transport.Config) (transport.Session, error)

// Dial implements transport.Transport.
func (d dialer) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	return d(ctx, cfg)
}

// connect connects to the assigned hub. It registers first if there is none, or if that hub refuses
// the device.
func (h *home) connect(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	h.progress = cfg.Progress
	own := *cfg
	for again := h.creds == nil; ; again = true {
		if h.creds == nil {
			a, err := h.client.Register(ctx)
			if err != nil {
				return nil, err
			}
			println("assigned to", a.Hub, "as", a.DeviceID)
			h.creds = h.client.Credentials(a)
		}
		own.Creds = h.creds
		s, err := h.hub.Dial(ctx, &own)
		switch transport.KindOf(err) {
		case transport.Unauthorized, transport.Forbidden, transport.NotFound:
			h.creds = nil
			if !again {
				continue
			}
		default:
		}
		return s, err
	}
}

// report shows what a registration waits for. Each step is progress, so that the device's time
// limit for a connection begins anew.
func (h *home) report(e provisioning.Event) {
	if e.Err != nil {
		println("registration:", e.Err.Error())
	}
	if h.progress != nil {
		h.progress()
	}
}

// dial connects to the provisioning service or to the hub.
func (h *home) dial(ctx context.Context, creds *transport.Credentials) (engine.Conn, error) {
	return h.modem.DialTo(ctx, creds.Host)
}
