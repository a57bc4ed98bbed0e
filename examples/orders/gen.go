//go:build ignore

// Gen writes sample.jsonl: 2,000 orders for 40 articles, the k-th of which is
// ordered about 1/k as often as the first.
//
// Articles that are ordered more often than there are units of them (100 each)
// are ordered one by one, the others up to five at once but never more in all
// than there are. So how many orders are accepted does not depend on the order
// in which they are served.
package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
)

const (
	orders = 2000
	units  = 100
)

func main() {
	var skus []string
	for _, thing := range []string{"mug", "cup", "bowl", "plate", "jug", "vase", "dish", "teapot"} {
		for _, colour := range []string{"blue", "green", "red", "white", "black"} {
			skus = append(skus, thing+"-"+colour)
		}
	}
	var weights []float64
	var sum float64
	for k := range skus {
		w := 1 / float64(k+1)
		weights = append(weights, w)
		sum += w
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var picks []int
	count := make([]int, len(skus))
	for range orders {
		x, k := rng.Float64()*sum, 0
		for x -= weights[k]; x > 0 && k < len(skus)-1; x -= weights[k] {
			k++
		}
		picks = append(picks, k)
		count[k]++
	}

	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for i, k := range picks {
		quantity := 1
		if spare := units - count[k]; spare > 0 { // beyond one each
			more := min(rng.IntN(5), spare)
			quantity += more
			count[k] += more
		}
		fmt.Fprintf(out, "{\"id\":\"o-%04d\",\"sku\":%q,\"quantity\":%d}\n", i+1, skus[k], quantity)
	}
}
