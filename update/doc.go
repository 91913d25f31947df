// Package update replaces the firmware of a board: it downloads an image into the slot that does
// not run, through outages and resets, verifies it, and takes it back if it does not confirm
// itself.
//
//	u, err := update.Open(&update.Options{
//		Layout: layout, Version: 7, Model: "roof-sensor", Verify: verify, // 7 is this image
//	})
//	err = u.Download(ctx, manifest, source) // returns when the image is verified; then reset
//	err = u.Confirm()                       // by the new firmware, after it has connected
//
// Where an update service vouches for the image, Stage and Activate do what Download does with a
// manifest of this package: package update/handler does that for agents of package update/agent.
// A program that does not import the package pays nothing for it.
//
// # Parts
//
// The flash has two slots for images and two erase blocks for the state (Layout). The manifest
// names model, version, size and SHA-256 of an image, and is signed; package update/edsign signs
// and verifies with Ed25519. A Source reads parts of the image: package update/httprange does that
// over HTTP. RAM holds one buffer of Options.Buffer bytes and one record of the state.
//
// # Boot loader
//
// The board's own boot loader chooses the slot. It is not part of this package. Boot is the
// decision that it has to make, written in Go: call it, or translate it. The page docs/updates.md
// has the bytes that it reads and writes.
//
// # Promises
//
// The slot of the confirmed image is never erased or written. If the power fails during any write
// or erase, Boot chooses the old image or the complete new one. Nothing of an image is started
// before its size, its hash and the signature of its manifest were verified. A version that is not
// above the confirmed one is refused, and so is the image that was taken back latest.
//
// The flash must finish a write before the next one begins, and must keep what it has written.
package update
