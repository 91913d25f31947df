package amqp_test

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/amqp/goamqp"
)

// poisonConn is a connection to a hub that has a fault at each message with poison in its body.
type poisonConn struct {
	net.Conn
	hub   *hub
	fault fault.Fault
}

var poison = []byte("poison")

func (c poisonConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, poison) {
		c.hub.inject(c.fault)
	}
	return c.Conn.Write(b)
}

// A message at which the hub detaches the link is refused at last, and the queue goes on. Only with
// package goamqp it costs connections.
func TestAMessageThatEndsItsLinkIsRefused(t *testing.T) {
	for name, f := range map[string]fault.Fault{
		"forced":         {},
		"in doubt":       {Unclosed: true},
		"odd condition":  {Condition: "com.example:odd"},
		"internal error": {Condition: "amqp:internal-error"},
		"not allowed":    {Condition: "amqp:not-allowed"},
	} {
		f.Kind, f.Device = fault.DetachOnMessage, "dev-1"
		for library, of := range map[string]func(o *amqp.Options) transport.Transport{
			"amqp":                  func(o *amqp.Options) transport.Transport { return amqp.New(o) },
			"goamqp":                func(o *amqp.Options) transport.Transport { return goamqp.New(o) },
			"amqp, without batches": func(o *amqp.Options) transport.Transport { o.Batch = 1; return amqp.New(o) },
		} {
			if library == "goamqp" && f.Unclosed {
				continue // go-amqp hides such a detach
			}
			t.Run(library+", "+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, h *hub) {
					o := h.options()
					o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
						c, err := h.Dial(testbroker.PortAMQP)(ctx, network, addr)
						return poisonConn{c, h, f}, err
					}
					c, err := device.New(h.CredsWith(t, ""), of(o), nil)
					require.NoError(t, err)
					defer c.Close()
					all := make([]device.Receipt, 20) // handed over at once: none goes while the link is attached
					const bad = 7
					for i := range all {
						m := numbered(i)
						if i == bad {
							m.Body = poison
						}
						require.NoError(t, c.Enqueue(t.Context(), m, &all[i]))
					}
					require.NoError(t, c.Open(t.Context()))
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					require.NoError(t, c.Flush(ctx))
					for i := range all {
						if err := all[i].Wait(t.Context()); i == bad {
							require.ErrorIs(t, err, transport.Poison)
						} else {
							require.NoError(t, err)
						}
					}
					if library != "goamqp" {
						require.EqualValues(t, 1, c.Stats().Connections)
					}
				})
			})
		}
	}
}
