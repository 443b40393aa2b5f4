//! A list in numbered pages: all of it, or an error.

use std::collections::HashSet;

use thiserror::Error;

/// One page as the server returned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// Its items.
    pub items: Vec<T>,
    /// The number of the next page; None on the last.
    pub next: Option<u64>,
    /// Number of items on all pages, where the server reports it.
    pub total: Option<u64>,
}

/// The list changed during each read, or the server does not number its pages correctly.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the list was incomplete in {readings} reads: {why}; it is not used")]
pub struct Partial {
    /// Number of reads.
    pub readings: u32,
    /// Why the last read failed.
    pub why: String,
}

/// A list that changes during a read is normal, several times in a row is not: one read takes well under a second.
const READINGS: u32 = 3;
/// 10,000 objects at 50 a page: beyond every project limit, and a bound for a server that always names a next page.
const MOST_PAGES: u64 = 200;

/// Collects a list page by page. Pure: the caller fetches [`Paging::page`] and passes it to [`Paging::take`].
///
/// A read is complete if its pages follow each other without a gap, no item comes twice, and the number of items equals the total of
/// each page; else it restarts at page 1. It cannot detect that an item is deleted from a page already read while another one is
/// created, both between two pages of one read. The next reconciliation lists again.
#[derive(Debug)]
pub struct Paging<T> {
    page: u64,
    readings: u32,
    total: Option<u64>,
    items: Vec<T>,
    seen: HashSet<u64>,
    key: fn(&T) -> u64,
}

impl<T> Paging<T> {
    /// `key` identifies an item.
    #[must_use]
    pub fn new(key: fn(&T) -> u64) -> Self {
        Paging { page: 1, readings: 1, total: None, items: Vec::new(), seen: HashSet::new(), key }
    }

    /// The page to fetch now, from 1.
    #[must_use]
    pub fn page(&self) -> u64 {
        self.page
    }

    /// Takes the response for [`Paging::page`]: Some with the complete list, None if there is more to fetch.
    pub fn take(&mut self, page: Page<T>) -> Result<Option<Vec<T>>, Partial> {
        match self.add(page) {
            Ok(true) => Ok(Some(std::mem::take(&mut self.items))),
            Ok(false) => Ok(None),
            Err(why) if self.readings >= READINGS => Err(Partial { readings: self.readings, why }),
            Err(_) => {
                let readings = self.readings + 1;
                *self = Paging { readings, ..Paging::new(self.key) };
                Ok(None)
            }
        }
    }

    /// Whether the list is complete with this page, or why it is not valid.
    fn add(&mut self, page: Page<T>) -> Result<bool, String> {
        if self.page > 1 && page.total != self.total {
            let say = |total: Option<u64>| total.map_or("no number of".to_owned(), |total| total.to_string());
            return Err(format!(
                "page {} says {} items, page 1 said {}",
                self.page,
                say(page.total),
                say(self.total)
            ));
        }
        self.total = page.total;
        let empty = page.items.is_empty();
        for item in page.items {
            let key = (self.key)(&item);
            if !self.seen.insert(key) {
                return Err(format!("item {key} came twice"));
            }
            self.items.push(item);
        }
        match page.next {
            Some(next) if next != self.page + 1 => {
                Err(format!("page {} names {next} as the next page", self.page))
            }
            Some(next) if empty => {
                Err(format!("page {} is empty and names {next} as the next page", self.page))
            }
            Some(next) if next > MOST_PAGES => Err(format!("more than {MOST_PAGES} pages")),
            Some(next) => {
                self.page = next;
                Ok(false)
            }
            None => match self.total {
                Some(total) if total != self.items.len() as u64 => {
                    Err(format!("{} of {total} items came", self.items.len()))
                }
                _ => Ok(true),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(items: &[u64], next: Option<u64>, total: Option<u64>) -> Page<u64> {
        Page { items: items.to_vec(), next, total }
    }

    fn read(pages: &[Page<u64>]) -> (Result<Option<Vec<u64>>, Partial>, usize) {
        let mut paging = Paging::new(|item| *item);
        for (fetched, page) in pages.iter().enumerate() {
            match paging.take(page.clone()) {
                Ok(None) => {}
                end => return (end, fetched + 1),
            }
        }
        (Ok(None), pages.len())
    }

    /// Reads a list whose `n`th fetch sees `lists[n]` (the last one for ever), `size` items a page.
    fn read_changing(lists: &[Vec<u64>], size: usize) -> Result<Vec<u64>, Partial> {
        let mut paging = Paging::new(|item| *item);
        for fetch in 0.. {
            let list = &lists[fetch.min(lists.len() - 1)];
            let at = paging.page() as usize;
            let items: Vec<u64> = list.iter().skip((at - 1) * size).take(size).copied().collect();
            let next = (list.len() > at * size).then_some(at as u64 + 1);
            if let Some(all) = paging.take(Page { items, next, total: Some(list.len() as u64) })? {
                return Ok(all);
            }
        }
        unreachable!()
    }

    proptest! {
        #[test]
        fn an_unchanged_list_is_complete(length in 0_u64..200, size in 1_usize..60) {
            let list: Vec<u64> = (0..length).collect();
            prop_assert_eq!(read_changing(std::slice::from_ref(&list), size), Ok(list));
        }

        /// Items are only deleted: the result has every item that existed all the time.
        #[test]
        fn a_shrinking_list_never_loses_an_item_that_stays(
            length in 1_u64..40, size in 1_usize..10, gone in proptest::collection::vec(0_u64..40, 0..12),
        ) {
            let mut lists = vec![(0..length).collect::<Vec<u64>>()];
            for gone in gone {
                let last = lists.last().unwrap().clone();
                lists.push(last.into_iter().filter(|item| *item != gone).collect());
            }
            if let Ok(all) = read_changing(&lists, size) {
                for stays in lists.last().unwrap() {
                    prop_assert!(all.contains(stays), "{stays} is missing in {all:?} of {lists:?}");
                }
            }
        }
    }

    #[test]
    fn a_list_that_shrank_during_a_read_is_read_again() {
        let lists = [vec![1, 2, 3, 4, 5], vec![2, 3, 4, 5]];
        assert_eq!(read_changing(&lists, 2), Ok(vec![2, 3, 4, 5]));
    }

    #[test]
    fn too_few_items_are_an_error_after_three_reads() {
        let short = page(&[1, 2], None, Some(3));
        let (end, fetched) = read(&[short.clone(), short.clone(), short.clone(), short]);
        assert_eq!(fetched, 3);
        assert_eq!(end.unwrap_err(), Partial { readings: 3, why: "2 of 3 items came".to_owned() });
    }

    #[test]
    fn loops_and_gaps_end() {
        for next in [0, 1, 3] {
            let looping = page(&[1], Some(next), None);
            let (end, fetched) = read(&vec![looping; 10]);
            assert_eq!(fetched, 3);
            assert!(end.unwrap_err().why.contains(&format!("names {next} as the next page")));
        }
    }

    #[test]
    fn a_page_that_repeats_under_another_number_is_an_error() {
        let same: Vec<Page<u64>> = (0..10).map(|n| page(&[1], Some(n % 2 + 2), None)).collect();
        assert!(read(&same).0.unwrap_err().why.contains("came twice"));
    }

    #[test]
    fn empty_pages_and_endless_lists_end() {
        let empty = page(&[], Some(2), Some(0));
        assert!(read(&vec![empty; 4]).0.unwrap_err().why.contains("is empty"));
        let mut paging = Paging::new(|item: &u64| *item);
        let end =
            (0..10_000).find_map(|item| paging.take(page(&[item], Some(paging.page() + 1), None)).err());
        assert!(end.unwrap().why.contains("more than 200 pages"));
    }
}
