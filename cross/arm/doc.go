// Package arm holds no code, only tests: what proves that Hubline runs on ARM boards, large and
// small, and what it costs there. README.md is the guide for both sorts; the programs are in the
// folders linux and board.
//
//	go test ./cross/arm                              what needs no emulated processor, and with tinygo and its emulator the boards
//	HUBLINE_REQUIRE_ARM=1 go test ./cross/arm        the suites of the core and of MQTT on ARMv6 and big-endian MIPS too
//	go test ./cross/arm -run Suites -all -timeout 1h the suites on every architecture
//
// What is left out is skipped, and said. HUBLINE_REQUIRE_ARM=1 makes a missing emulator
// (qemu-user-static) a failure, HUBLINE_REQUIRE_TINYGO=1 a missing tinygo, qemu-system-arm or node.
package arm
