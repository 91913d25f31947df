//go:build race

package sim_test

// defaultSeeds is how many seeds the simulation tries for each engine.
const defaultSeeds = 50
