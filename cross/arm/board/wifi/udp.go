package wifi

import "encoding/binary"

// Endpoint is one end of a datagram's way through the local network.
type Endpoint struct {
	MAC  [6]byte // of the router, for an address beyond it
	IP   [4]byte
	Port uint16
}

// Offsets and sizes of Ethernet II, IPv4 without options (RFC 791) and UDP (RFC 768).
const (
	ethernetSize = 14
	ipSize       = 20
	udpSize      = 8
	headerSize   = ethernetSize + ipSize + udpSize

	etherTypeIPv4 = 0x0800
	version4      = 4
	protocolUDP   = 17
	timeToLive    = 64
	dontFragment  = 0x4000
	fragmentMask  = 0x3fff // more fragments, and the offset
)

// appendFrame appends an Ethernet frame with a datagram. The payload must fit into one frame.
func appendFrame(b []byte, from, to *Endpoint, payload []byte) []byte {
	start := len(b)
	b = append(append(b, to.MAC[:]...), from.MAC[:]...)
	b = binary.BigEndian.AppendUint16(b, etherTypeIPv4)
	ip := len(b)
	b = append(b, version4<<4|ipSize/4, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(ipSize+udpSize+len(payload)))
	b = append(b, 0, 0, dontFragment>>8, dontFragment&0xff, timeToLive, protocolUDP, 0, 0)
	b = append(append(b, from.IP[:]...), to.IP[:]...)
	binary.BigEndian.PutUint16(b[ip+10:], ^fold(sum(0, b[ip:])))
	b = binary.BigEndian.AppendUint16(b, from.Port)
	b = binary.BigEndian.AppendUint16(b, to.Port)
	b = binary.BigEndian.AppendUint16(b, uint16(udpSize+len(payload)))
	b = append(append(b, 0, 0), payload...)
	udp := b[start+ethernetSize+ipSize:]
	check := ^checksumUDP(b[ip:ip+ipSize], udp)
	if check == 0 {
		check = 0xffff // 0 is for none
	}
	binary.BigEndian.PutUint16(udp[6:], check)
	return b
}

// parseFrame returns the datagram of an Ethernet frame. ok is false for everything else: other
// protocols, fragments, wrong lengths and wrong checksums. payload is a part of the frame.
func parseFrame(frame []byte) (from, to Endpoint, payload []byte, ok bool) {
	if len(frame) < headerSize || binary.BigEndian.Uint16(frame[12:]) != etherTypeIPv4 {
		return from, to, nil, false
	}
	ip := frame[ethernetSize:]
	header, total := int(ip[0]&0xf)*4, int(binary.BigEndian.Uint16(ip[2:]))
	switch {
	case ip[0]>>4 != version4, header < ipSize, total > len(ip), total < header+udpSize, ip[9] != protocolUDP:
		return from, to, nil, false
	case binary.BigEndian.Uint16(ip[6:])&fragmentMask != 0, fold(sum(0, ip[:header])) != 0xffff:
		return from, to, nil, false
	}
	udp := ip[header:total]
	if int(binary.BigEndian.Uint16(udp[4:])) != len(udp) ||
		binary.BigEndian.Uint16(udp[6:]) != 0 && checksumUDP(ip, udp) != 0xffff {
		return from, to, nil, false
	}
	from = Endpoint{[6]byte(frame[6:]), [4]byte(ip[12:]), binary.BigEndian.Uint16(udp)}
	to = Endpoint{[6]byte(frame), [4]byte(ip[16:]), binary.BigEndian.Uint16(udp[2:])}
	return from, to, udp[udpSize:], true
}

// checksumUDP adds the pseudo header and the datagram.
func checksumUDP(ip, udp []byte) uint16 {
	return fold(sum(sum(uint32(protocolUDP)+uint32(len(udp)), ip[12:20]), udp))
}

// sum adds b as big-endian 16-bit words. A frame is too short for an overflow.
func sum(s uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}

func fold(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
