package mqtt

import (
	"github.com/eclipse/paho.mqtt.golang/packets"
)

// packetStore is a session seen as the library's message store. It stores nothing, so the library
// resends nothing. The library puts a SUBSCRIBE into its store before it is written: the one place
// to learn its id.
type packetStore session

// Put is called within Do for what goes out, on the reading goroutine for what comes in.
func (p *packetStore) Put(key string, packet packets.ControlPacket) {
	if key[0] != 'o' {
		return
	}
	s := (*session)(p)
	subscribe, ok := packet.(*packets.SubscribePacket)
	if !ok {
		return // there is none
	}
	s.nowID = subscribe.MessageID
	if s.nowID > lastSubID {
		s.conn.fail(errManySubs)
		return
	}
	s.mu.Lock()
	if s.subs == nil {
		s.subs = make(map[uint16]subscription)
	}
	s.subs[s.nowID] = subscription{s.now, subscribe.Topics}
	s.mu.Unlock()
}

// Close is called when the library gave up connecting or has disconnected, not when the connection
// was lost.
func (p *packetStore) Close() { poke(p.closed) }

func (p *packetStore) Open()                            {}
func (p *packetStore) Reset()                           {}
func (p *packetStore) Del(string)                       {}
func (p *packetStore) All() []string                    { return nil }
func (p *packetStore) Get(string) packets.ControlPacket { return nil }
