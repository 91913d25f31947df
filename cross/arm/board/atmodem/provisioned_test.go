package atmodem_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cross/arm/board"
	"github.com/hubline-iot/hubline/cross/arm/internal/modems"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsengine"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// home is the hub for which a board asks the provisioning service, as in board/serial.
type home struct {
	client *provisioning.Client
	hub    transport.Transport
	creds  *transport.Credentials // nil: unknown
	found  []string               // the hubs, in order
}

// Dial implements transport.Transport.
func (h *home) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	own := *cfg
	for again := h.creds == nil; ; again = true {
		if h.creds == nil {
			a, err := h.client.Register(ctx)
			if err != nil {
				return nil, err
			}
			h.creds, h.found = h.client.Credentials(a), append(h.found, a.Hub)
		}
		own.Creds = h.creds
		s, err := h.hub.Dial(ctx, &own)
		if !errors.Is(err, transport.Unauthorized) {
			return s, err
		}
		if h.creds = nil; again {
			return nil, err
		}
	}
}

// A board registers over its modem, is moved to another hub while it sends, and loses no reading;
// the modem's connections to the service and the hubs are cut meanwhile. With TLS the modem
// verifies all three.
func TestProvisioningOverAModem(t *testing.T) {
	eachKind(t, func(t *testing.T, s setup) {
		second, err := testbroker.New(&testbroker.Options{Seed: 2, HostName: "hub-2.example.test"})
		require.NoError(t, err)
		defer second.Close()
		service, err := testbroker.NewDPS(&testbroker.DPSOptions{Polls: 2})
		require.NoError(t, err)
		defer service.Close()
		port := testbroker.PortMQTT
		if s.secure {
			port = testbroker.PortMQTTS
		}
		hosts := map[string]func(context.Context, string, string) (net.Conn, error){
			service.HostName(): service.Dial(port), second.HostName(): second.Dial(port),
		}
		s.modem = func(c *modems.Config) {
			first := c.Dial
			c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				host, _, err := net.SplitHostPort(addr)
				if err != nil {
					return nil, err
				}
				if dial := hosts[host]; dial != nil {
					return dial(ctx, network, addr)
				}
				return first(ctx, network, addr)
			}
		}
		b := newBench(t, s)
		require.NoError(t, service.Link(b.hub, second))
		own, err := service.Enroll(dpsdata.Enrollment{ID: "board-registration", DeviceID: "thermometer-1",
			Hubs: []string{b.hub.HostName()}})
		require.NoError(t, err)
		faults := []*testbroker.Injected{
			service.Inject(fault.Fault{Kind: fault.RefuseProvisioning}),
			service.Inject(fault.Fault{Kind: fault.DropAfterProvisioning, After: 2}),
		}
		if s.secure { // the emulated modem takes a file with three roots; Azure has one for all
			b.insist(t, func(ctx context.Context) error {
				return b.modem.WriteCA(ctx, append(append(b.hub.CAPEM(), second.CAPEM()...), service.CAPEM()...))
			})
		}
		b.insist(t, b.modem.SetClock)

		h := &home{}
		sign := board.Signer(board.Key(own.PrimaryKey))
		id := provisioning.Identity{Endpoint: service.HostName(), IDScope: service.IDScope(),
			RegistrationID: "board-registration", Sign: sign, Now: b.modem.Now}
		dial := func(ctx context.Context, creds *transport.Credentials) (engine.Conn, error) {
			return b.modem.DialTo(ctx, creds.Host)
		}
		h.client, err = provisioning.New(&id, dpsengine.New(dial, nil), nil)
		require.NoError(t, err)
		c := b.config(time.Second)
		c.Host, c.DeviceID, c.Sign = service.HostName(), "board-registration", sign
		c.Dial = dial
		c.Wrap = func(hub transport.Transport) transport.Transport {
			h.hub = hub
			return h
		}
		firmware, err := board.New(c)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			defer stop()
			time.Sleep(2 * time.Minute)
			b.emu.Drop()
			time.Sleep(time.Minute)
			require.NoError(t, service.Move("board-registration", second.HostName()))
			require.NoError(t, b.hub.RemoveDevice("thermometer-1"))
			time.Sleep(time.Minute)
			b.emu.Cut()
			time.Sleep(2 * time.Minute)
		}()
		require.NoError(t, firmware.Run(ctx))
		counts := firmware.Counts()
		require.Zero(t, counts.Lost)
		require.Equal(t, counts.Taken, counts.Acknowledged)
		require.Equal(t, []string{b.hub.HostName(), second.HostName()}, h.found)
		for _, f := range faults {
			require.Equal(t, 1, f.Fired())
		}
		arrived := map[int]bool{}
		for _, hub := range []*testbroker.Hub{b.hub, second} {
			require.Greater(t, hub.Len(), 100)
			for _, m := range hub.Messages() {
				var reading struct{ N int }
				require.NoError(t, json.Unmarshal(m.Body, &reading), "%q", m.Body)
				arrived[reading.N] = true
			}
		}
		for n := range int(counts.Taken) {
			require.True(t, arrived[n+1], "reading %d of %d", n+1, counts.Taken)
		}
	})
}
