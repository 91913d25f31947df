package bench

import "testing"

// BenchmarkSend is one QoS 1 message of 100 bytes from the call to its acknowledgement, 128 in flight.
func BenchmarkSend(b *testing.B) {
	const window = 128
	body := make([]byte, 100)
	for _, peer := range []func() (*Peer, error){Mochi, Bare} {
		p, err := peer()
		if err != nil {
			b.Fatal(err)
		}
		for _, s := range []struct {
			name string
			make func() (Sender, error)
		}{
			{"paho", func() (Sender, error) { return Paho(p.Addr) }},
			{"hubline", func() (Sender, error) { return Hubline(p.Addr, window) }},
		} {
			b.Run(p.Name+"/"+s.name, func(b *testing.B) {
				sender, err := s.make()
				if err != nil {
					b.Fatal(err)
				}
				defer sender.Close()
				if err := sender.Send(2*window, window, body); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				b.ResetTimer()
				if err := sender.Send(b.N, window, body); err != nil {
					b.Fatal(err)
				}
			})
		}
		p.Close()
	}
}
