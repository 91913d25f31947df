module github.com/hubline-iot/hubline/cross/arm/board/picow

go 1.26.0

require (
	github.com/hubline-iot/hubline v0.1.0
	github.com/soypat/cyw43439 v0.0.0-20250505012923-830110c8f4af
	github.com/soypat/seqs v0.0.0-20250124201400-0d65bc7c1710
)

require (
	github.com/tinygo-org/pio v0.2.0 // indirect
	golang.org/x/exp v0.0.0-20240808152545-0cdaa3abc0fa // indirect
)

replace github.com/hubline-iot/hubline => ../../../..
