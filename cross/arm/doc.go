// Package arm contains only tests: they prove that Hubline runs on ARM boards, large and small, and
// measure its cost there. README.md is the guide for both kinds; the programs are in the folders
// linux and board.
//
//	go test ./cross/arm                          firmware in fake time, the Linux service
//	HUBLINE_REQUIRE_ARM=1 go test ./cross/arm    and the core and MQTT on 386, ARMv6 and
//	                                             big-endian MIPS, and binaries, sizes, memory
//	go test ./cross/arm -run Suites -all -timeout 1h    the suites on every architecture
//
// With tinygo and its emulator, each command runs the boards' firmware as well.
//
// Tests without their tools are skipped with a message. HUBLINE_REQUIRE_ARM=1 makes a missing
// emulator (qemu-user-static) a failure, HUBLINE_REQUIRE_TINYGO=1 a missing tinygo, qemu-system-arm
// or node.
package arm
