package flashlog

import "encoding/binary"

// A record has a header of headerSize bytes, the body, and 0xff up to the end of a write block.
// Numbers are little endian.
//
//	0  number of the reading
//	4  lowest number that was not forgotten when the record was written
//	8  length of the body
//	10 kind
//	12 CRC-32 of the bytes above and the body
const headerSize = 16

const (
	kindReading = 0x4831
	kindMark    = 0x4832 // no reading: repeats the latest number, and has no body
)

// record is a header, without its checksum.
type record struct {
	number, first uint32
	length        int
	kind          uint16
}

// newer reports whether r was written after o: both fields only grow, and never neither.
func (r record) newer(o record) bool {
	if r.number != o.number {
		return r.number > o.number
	}
	return r.first > o.first
}

// encode writes r with its body to the beginning of buf, which is large enough, and returns the
// first size bytes of it.
func (r record) encode(buf, body []byte, size int) []byte {
	buf = buf[:size]
	binary.LittleEndian.PutUint32(buf, r.number)
	binary.LittleEndian.PutUint32(buf[4:], r.first)
	binary.LittleEndian.PutUint16(buf[8:], uint16(len(body)))
	binary.LittleEndian.PutUint16(buf[10:], r.kind)
	n := headerSize + copy(buf[headerSize:], body)
	binary.LittleEndian.PutUint32(buf[12:], checksum(buf[:12], buf[headerSize:n]))
	for i := n; i < size; i++ {
		buf[i] = erased
	}
	return buf
}

// decodeHeader returns the record with this header. It is invalid if the kind or the length is.
func decodeHeader(header []byte, maxBody int) (r record, ok bool) {
	r.number = binary.LittleEndian.Uint32(header)
	r.first = binary.LittleEndian.Uint32(header[4:])
	r.length = int(binary.LittleEndian.Uint16(header[8:]))
	r.kind = binary.LittleEndian.Uint16(header[10:])
	switch r.kind {
	case kindReading:
		return r, r.length <= maxBody
	case kindMark:
		return r, r.length == 0
	}
	return r, false
}

// intact reports whether the checksum of a complete record is right.
func intact(b []byte, length int) bool {
	return binary.LittleEndian.Uint32(b[12:]) == checksum(b[:12], b[headerSize:headerSize+length])
}

// checksum is CRC-32 (IEEE) of both parts, bit by bit: the table of hash/crc32 takes 1 KB.
func checksum(parts ...[]byte) uint32 {
	c := ^uint32(0)
	for _, p := range parts {
		for _, b := range p {
			c ^= uint32(b)
			for range 8 {
				c = c>>1 ^ 0xedb88320&-(c&1)
			}
		}
	}
	return ^c
}
