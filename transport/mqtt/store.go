package mqtt

import (
	"github.com/eclipse/paho.mqtt.golang/packets"
)

// packetStore is a session as the library's message store. It stores nothing, so the library
// resends nothing. The library puts a SUBSCRIBE into its store before writing it, which is the only
// way to learn its packet id.
type packetStore session

// Put is called within Do for outgoing packets, on the reading goroutine for incoming ones.
func (p *packetStore) Put(key string, packet packets.ControlPacket) {
	if key[0] != 'o' {
		return
	}
	s := (*session)(p)
	subscribe, ok := packet.(*packets.SubscribePacket)
	if !ok {
		return // no other type gets here
	}
	s.subscribeID = subscribe.MessageID
	if s.subscribeID > lastSubID {
		s.conn.fail(errManySubs)
		return
	}
	s.mu.Lock()
	if s.subs == nil {
		s.subs = make(map[uint16]subscription)
	}
	s.subs[s.subscribeID] = subscription{s.subscribing, subscribe.Topics}
	s.mu.Unlock()
}

// Close is called when the library failed to connect or has disconnected, not when the connection
// was lost.
func (p *packetStore) Close() { notify(p.closed) }

func (p *packetStore) Open()                            {}
func (p *packetStore) Reset()                           {}
func (p *packetStore) Del(string)                       {}
func (p *packetStore) All() []string                    { return nil }
func (p *packetStore) Get(string) packets.ControlPacket { return nil }
