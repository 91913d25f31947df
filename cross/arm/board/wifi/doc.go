// Package wifi takes a board with a Wi-Fi chip and an IP stack in Go to its first connection, and
// to the next one after a loss: it joins the access point, leases an address, sets the clock and
// dials. Station does that over two small interfaces, Radio and Stack, so that a plain Go test can
// play the chip. Folder picow implements them for the Raspberry Pi Pico W.
//
// Socket is a UDP socket for a stack that has none which a program can use. It reads Ethernet
// frames, so everything in them is checked.
package wifi
