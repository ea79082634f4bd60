//! A dense matrix of f64 in row-major order, with what a least-squares fit needs.

use std::fmt;
use std::ops::{Index, IndexMut};

#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    data: Vec<f64>,
}

#[derive(Debug, PartialEq)]
pub enum Error {
    Shape { left: (usize, usize), right: (usize, usize) },
    Singular,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Shape { left, right } => write!(f, "shapes {left:?} and {right:?} do not fit"),
            Error::Singular => write!(f, "the matrix is singular"),
        }
    }
}

impl Matrix {
    pub fn zeros(rows: usize, cols: usize) -> Self {
        Matrix { rows, cols, data: vec![0.0; rows * cols] }
    }

    pub fn transposed(&self) -> Matrix {
        let mut out = Matrix::zeros(self.cols, self.rows);
        for r in 0..self.rows {
            for c in 0..self.cols {
                out[(c, r)] = self[(r, c)];
            }
        }
        out
    }

    pub fn multiply(&self, other: &Matrix) -> Result<Matrix, Error> {
        if self.cols != other.rows {
            let left = (self.rows, self.cols);
            return Err(Error::Shape { left, right: (other.rows, other.cols) });
        }
        let mut out = Matrix::zeros(self.rows, other.cols);
        for r in 0..self.rows {
            for k in 0..self.cols {
                let v = self[(r, k)];
                for c in 0..other.cols {
                    out[(r, c)] += v * other[(k, c)];
                }
            }
        }
        Ok(out)
    }

    /// Solves `self * x = b` by elimination with partial pivoting.
    pub fn solve(mut self, mut b: Vec<f64>) -> Result<Vec<f64>, Error> {
        let n = self.rows;
        if n != self.cols || n != b.len() {
            return Err(Error::Shape { left: (n, self.cols), right: (b.len(), 1) });
        }
        for k in 0..n {
            let p = (k..n).max_by(|&i, &j| self[(i, k)].abs().total_cmp(&self[(j, k)].abs()));
            let p = p.unwrap_or(k);
            if self[(p, k)].abs() < 1e-12 {
                return Err(Error::Singular);
            }
            for c in 0..n {
                self.data.swap(k * n + c, p * n + c);
            }
            b.swap(k, p);
            for r in k + 1..n {
                let f = self[(r, k)] / self[(k, k)];
                for c in k..n {
                    self[(r, c)] -= f * self[(k, c)];
                }
                b[r] -= f * b[k];
            }
        }
        for k in (0..n).rev() {
            let known: f64 = (k + 1..n).map(|c| self[(k, c)] * b[c]).sum();
            b[k] = (b[k] - known) / self[(k, k)];
        }
        Ok(b)
    }
}

impl Index<(usize, usize)> for Matrix {
    type Output = f64;
    fn index(&self, (r, c): (usize, usize)) -> &f64 {
        &self.data[r * self.cols + c]
    }
}

impl IndexMut<(usize, usize)> for Matrix {
    fn index_mut(&mut self, (r, c): (usize, usize)) -> &mut f64 {
        &mut self.data[r * self.cols + c]
    }
}
