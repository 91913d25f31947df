package main

func init() {
	const folder = "cross/arm/board/wifi/"
	tables["wifi"] = []mutation{
		{File: folder + "station.go", Old: "		s.on, s.failures = false, 0\n", New: ""},
		{File: folder + "station.go", Old: "	s.failures = 0\n	return leasedConn", New: "	return leasedConn"},
		{File: folder + "station.go", Old: "err == nil || ctx.Err() != nil:\n	case s.fail", New: "err == nil:\n	case s.fail"},
		{File: folder + "station.go", Old: "	s.leased = false // perhaps another network of the same name\n", New: ""},
		{File: folder + "station.go", Old: "max(d/2, leaseFloor)", New: "d / 2"},
		{File: folder + "station.go", Old: "max(d/2, leaseFloor)", New: "max(d, leaseFloor)"},
		{File: folder + "station.go", Old: "if !time.Now().Before(c.end) {", New: "if false {"},
		{File: folder + "station.go", Old: "if s.clock.IsSet() && now.Before(s.correct) {", New: "if s.clock.IsSet() {"},
		{File: folder + "station.go", Old: "		s.correct, err = now.Add(clockRetry), nil\n", New: ""},
		{File: folder + "station.go", Old: "if time.Now().Before(end) {", New: "if time.Now().Before(end) || true {"},
		{File: folder + "udp.go", Old: "total > len(ip), ", New: ""},
		{File: folder + "udp.go", Old: "&fragmentMask != 0", New: "&0 != 0"},
		{File: folder + "udp.go", Old: ", fold(sum(0, ip[:header])) != 0xffff:", New: ":"},
		{File: folder + "udp.go", Old: " && checksumUDP(ip, udp) != 0xffff", New: " && false"},
		{File: folder + "socket.go", Old: " || from.IP != s.remote.IP", New: ""},
		{File: folder + "socket.go", Old: " || from.Port != s.remote.Port", New: ""},
		{File: folder + "socket.go", Old: "if !s.full && !s.closed {", New: "if !s.closed {"},
		{File: folder + "socket.go", Old: "if len(p) > maxPayload {", New: "if false {"},
	}
}
