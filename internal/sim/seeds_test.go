//go:build !race

package sim_test

// defaultSeeds is how many seeds the simulation tries for each engine. With the race detector a seed
// takes ten times as long.
const defaultSeeds = 200
