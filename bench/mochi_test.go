package main

import (
	"sync"
	"testing"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// recorder records what a broker gets.
type recorder struct {
	allowAll
	mu  sync.Mutex
	got []packets.Packet
}

func (r *recorder) Provides(b byte) bool { return b == mochi.OnPublish || r.allowAll.Provides(b) }

func (r *recorder) OnPublish(_ *mochi.Client, p packets.Packet) (packets.Packet, error) {
	r.mu.Lock()
	r.got = append(r.got, p)
	r.mu.Unlock()
	return p, nil
}

// The senders to brokers send the same too.
func TestSendersToBrokersSendTheSame(t *testing.T) {
	const size, n = 100, 500
	for _, s := range MQTT5.Senders {
		for _, secure := range []bool{false, true} {
			for _, window := range []int{1, 3, 128, 1024} {
				log := new(recorder)
				server, a, err := newMochi(secure, log)
				if err != nil {
					t.Fatal(err)
				}
				sender, err := s.Open(&Peer{access: *a}, Load{Window: window, Size: size})
				if err != nil {
					t.Fatal(s.Name, secure, window, err)
				}
				for range 2 {
					if err := sender.Send(t.Context(), n); err != nil {
						t.Fatal(s.Name, secure, window, err)
					}
				}
				sender.Close()
				_ = server.Close()
				if len(log.got) != 2*n {
					t.Fatalf("%s, TLS %v, window %d: the broker has %d messages of %d", s.Name, secure, window, len(log.got), 2*n)
				}
				for _, m := range log.got {
					if m.FixedHeader.Qos != 1 || m.FixedHeader.Dup || len(m.Payload) != size || m.TopicName != brokerTopic {
						t.Fatalf("%s, TLS %v, window %d: the broker has %+v", s.Name, secure, window, m)
					}
				}
			}
		}
	}
}
