// Package compat has the retry policies of other SDKs and libraries, by their names, for programs
// that migrate from them or must behave like them. Each computes what the library's code computes,
// and is tested with the library's published test vectors where there are any. A name with a year
// is the behaviour until then. The page docs/retries.md has the table of systems.
//
// The back-off that the Azure IoT device SDKs document is retrypolicy.ExponentialBackoffWithJitter.
package compat
