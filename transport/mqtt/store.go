package mqtt

import (
	"github.com/eclipse/paho.mqtt.golang/packets"
)

// packetStore is a session seen as the library's message store. It stores nothing, so the library resends nothing. The library puts each packet that
// waits for an answer into its store within Publish and Subscribe, before it is written: the one place to learn its id and to set DUP.
type packetStore session

// Put is called within Send and Do for what goes out, on the reading goroutine for what comes in.
func (p *packetStore) Put(key string, packet packets.ControlPacket) {
	if key[0] != 'o' {
		return
	}
	s := (*session)(p)
	f := s.now
	switch packet := packet.(type) {
	case *packets.PublishPacket:
		packet.Dup = s.again
		s.nowID = packet.MessageID
	case *packets.SubscribePacket:
		f.filters = packet.Topics
		s.nowID = packet.MessageID
	default:
		return
	}
	s.mu.Lock()
	s.flights[s.nowID] = f
	s.mu.Unlock()
}

// Close is called when the library gave up connecting or has disconnected, not when the connection was lost.
func (p *packetStore) Close() { poke(p.closed) }

func (p *packetStore) Open()                            {}
func (p *packetStore) Reset()                           {}
func (p *packetStore) Del(string)                       {}
func (p *packetStore) All() []string                    { return nil }
func (p *packetStore) Get(string) packets.ControlPacket { return nil }
