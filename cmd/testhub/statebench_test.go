package main

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/mqtt/lean/leannet"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// BenchmarkState measures acknowledged messages of 100 bytes over MQTT and TLS: without a state,
// with one, and with one on the disk; from one device with one sender, from one with 64 senders,
// whose messages leave one by one (paho) or together (lean), and from 64 devices.
func BenchmarkState(b *testing.B) {
	for _, kind := range []string{"none", "-state", "-state-sync"} {
		for _, from := range []struct {
			devices, senders int
			engine           string
		}{{1, 1, "mqtt"}, {1, 64, "mqtt"}, {1, 64, "lean"}, {64, 1, "mqtt"}} {
			b.Run(fmt.Sprintf("%s/%s/devices=%d/senders=%d", kind, from.engine, from.devices, from.senders),
				func(b *testing.B) {
					args := map[string][]string{"none": nil, "-state": {"-state", b.TempDir()},
						"-state-sync": {"-state", b.TempDir(), "-state-sync"}}[kind]
					for i := range from.devices {
						args = append(args, "-device", fmt.Sprint("d", i))
					}
					p := start(b, args...)
					var clients []*device.Client
					for i := range from.devices {
						c := p.benchClient(fmt.Sprint("d", i), from.engine)
						require.NoError(b, c.Open(soon(b)))
						clients = append(clients, c)
					}
					sendAll(b, clients, from.senders)
				})
		}
	}
}

// benchClient is client with the engine lean, too.
func (p *program) benchClient(id, engine string) *device.Client {
	if engine != "lean" {
		return p.client(id, engine, nil)
	}
	creds := p.creds(id)
	network := &netopt.Options{Addr: p.ready.Addresses["mqtt"], TLS: p.tls()}
	c, err := device.New(creds, lean.New(leannet.Dialer(creds, network), nil), nil)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { require.NoError(p.t, c.Close()) })
	return c
}

// sendAll sends b.N messages from as many senders of each client.
func sendAll(b *testing.B, clients []*device.Client, senders int) {
	body := make([]byte, 100)
	tokens := make(chan struct{}, b.N)
	for range b.N {
		tokens <- struct{}{}
	}
	close(tokens)
	b.ResetTimer()
	var all sync.WaitGroup
	for i := range len(clients) * senders {
		all.Go(func() {
			for range tokens {
				if err := clients[i%len(clients)].Send(b.Context(), &transport.Message{Body: body}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
