package texts

// Plain reports whether s, which is UTF-8, has no character that MQTT advises against and for which
// brokers such as mosquitto close the connection: controls and noncharacters (section 1.5.3; 1.5.4
// of MQTT 5).
func Plain(s string) bool {
	for _, r := range s {
		if r < ' ' || 0x7f <= r && r < 0xa0 || 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe {
			return false
		}
	}
	return true
}
