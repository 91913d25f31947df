package main

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// BenchmarkState measures acknowledged messages of 100 bytes over MQTT and TLS: without a state,
// with one, and with one on the disk; from one device with one sender, from one with 64 senders,
// whose messages leave together, and from 64 devices.
func BenchmarkState(b *testing.B) {
	for _, kind := range []string{"none", "-state", "-state-sync"} {
		for _, from := range []struct {
			devices, senders int
		}{{1, 1}, {1, 64}, {64, 1}} {
			b.Run(fmt.Sprintf("%s/devices=%d/senders=%d", kind, from.devices, from.senders),
				func(b *testing.B) {
					args := map[string][]string{"none": nil, "-state": {"-state", b.TempDir()},
						"-state-sync": {"-state", b.TempDir(), "-state-sync"}}[kind]
					for i := range from.devices {
						args = append(args, "-device", fmt.Sprint("d", i))
					}
					p := start(b, args...)
					var clients []*device.Client
					for i := range from.devices {
						c := p.client(fmt.Sprint("d", i), "mqtt", nil)
						require.NoError(b, c.Open(soon(b)))
						clients = append(clients, c)
					}
					sendAll(b, clients, from.senders)
				})
		}
	}
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
