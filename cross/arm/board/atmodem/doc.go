// Package atmodem connects a board over a cellular modem with AT commands, and takes the time from
// the network:
//
//	modem, err := atmodem.New(atmodem.Config{
//		Port: line, Dialect: atmodem.BG9x, Host: "HUB.azure-devices.net", APN: "internet", CA: "ca.pem",
//	})
//	...
//	firmware, err := board.New(board.Config{Dial: modem.Dial, Now: modem.Now, ...})
//
// The dialects are tables: SIM7x00 for SIMCom's SIM7500, SIM7600 and A76xx, BG9x for Quectel's
// BG95, BG96 and their relatives. They come from the manuals and from published drivers, and are
// tested with an emulated modem only.
//
// TLS is the modem's. The modem verifies the hub's certificate with the CA certificate in its file
// Config.CA, which WriteCA writes, and with its own clock. There is no TLS without verification.
//
// A dial that fails repeats nothing by itself; the client's retry policy decides when the next one
// follows. After more failures in a row a dial first resets more: the data connection, the radio,
// the modem. A dial whose context ends goes on later where it was: cellular modems need minutes to
// start and to find a network, and dials have 30 s.
//
// A lost byte during an exchange costs the connection, nothing else, but for one case: on a line
// without flow control a byte of the payload may be lost on the way to the modem, or the modem's
// prompt on the way back. The modem then waits and takes the next bytes instead. With
// Config.PowerKey or Config.PowerCycle the modem is restarted and forgets what it had; without, the
// hub may receive one damaged message.
package atmodem
