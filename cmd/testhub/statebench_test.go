package main

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// BenchmarkState measures acknowledged messages of 100 bytes over MQTT, from one device with so
// many senders: without a state, with one, and with one on the disk.
func BenchmarkState(b *testing.B) {
	for _, kind := range []string{"none", "-state", "-state-sync"} {
		for _, senders := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/senders=%d", kind, senders), func(b *testing.B) {
				args := map[string][]string{"none": nil, "-state": {"-state", b.TempDir()},
					"-state-sync": {"-state", b.TempDir(), "-state-sync"}}[kind]
				p := start(b, args...)
				c := p.client("dev-1", "mqtt", nil)
				require.NoError(b, c.Open(soon(b)))
				body := make([]byte, 100)
				tokens := make(chan struct{}, b.N)
				for range b.N {
					tokens <- struct{}{}
				}
				close(tokens)
				b.ResetTimer()
				var all sync.WaitGroup
				for range senders {
					all.Go(func() {
						for range tokens {
							if err := c.Send(b.Context(), &transport.Message{Body: body}); err != nil {
								b.Error(err)
							}
						}
					})
				}
				all.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}
