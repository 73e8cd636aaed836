// nothing.cpp: stands for the CUDA sources of a target that is declared, but not built, where there is no
// nvcc.
