package mqtt

// The functions of this file return whole packets. In MQTT 3.1.1 properties, and the reason codes
// of packets that have none there, are left out.

// EncodeConnack returns a CONNACK.
func EncodeConnack(version byte, present bool, code byte, all Properties) []byte {
	body := []byte{0, code}
	if present {
		body[0] = 1
	}
	if version == V5 {
		body = all.append(body)
	}
	return packet(Connack<<4, body)
}

// EncodePublish returns a PUBLISH.
func EncodePublish(version byte, k *PublishPacket) []byte {
	first := byte(Publish<<4) | k.QoS<<1
	if k.Dup {
		first |= 8
	}
	if k.Retain {
		first |= 1
	}
	head := appendText(nil, k.Topic)
	if k.QoS > 0 {
		head = appendUint16(head, k.ID)
	}
	if version == V5 {
		head = k.Properties.append(head)
	}
	return packet(first, head, k.Payload)
}

// EncodeAck returns a PUBACK, PUBREC, PUBREL or PUBCOMP.
func EncodeAck(version, typ byte, a AckPacket) []byte {
	first := typ << 4
	if typ == Pubrel {
		first |= 2
	}
	body := appendUint16(nil, a.ID)
	if version == V5 && (a.Code != 0 || len(a.Properties) > 0) {
		if body = append(body, a.Code); len(a.Properties) > 0 {
			body = a.Properties.append(body)
		}
	}
	return packet(first, body)
}

// SubackBody returns what follows the length of a SUBACK or UNSUBACK.
func SubackBody(version byte, id uint16, all Properties, codes []byte) []byte {
	body := appendUint16(nil, id)
	if version == V5 {
		body = all.append(body)
	}
	return append(body, codes...)
}

// EncodeSuback returns a SUBACK or UNSUBACK with a body from SubackBody.
func EncodeSuback(typ byte, body []byte) []byte { return packet(typ<<4, body) }

// EncodeEnd returns a DISCONNECT or an AUTH of MQTT 5.
func EncodeEnd(typ byte, e EndPacket) []byte {
	if e.Code == 0 && len(e.Properties) == 0 {
		return packet(typ << 4)
	}
	return packet(typ<<4, e.Properties.append([]byte{e.Code}))
}

// EncodePingresp returns a PINGRESP.
func EncodePingresp() []byte { return packet(Pingresp << 4) }
