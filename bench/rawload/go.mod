module ottla/bench/rawload

go 1.22
