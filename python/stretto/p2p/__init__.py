"""`stretto p2p`: how fast bytes go from one host to another over the net that carries communicators, beside plain
sockets and peers, in turns and verified. The measuring loops are native (benchmarks/net,
benchmarks/openmpi_p2p_driver.cpp).
"""
